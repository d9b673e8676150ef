"""An optimum, or a base configuration, in another framework's words."""

from .fasop import FASOP_SEPARATOR, FasopTable, fasop_rows
from .megatron_job import JobNode, NodeJob
from .page import (
    NEMO_DEGREES,
    Exported,
    Optimum,
    Page,
    comments,
    export_base,
    export_optimum,
    groups_told,
    splits_sequence,
    with_whole_steps,
)
from .rows import (
    NATIVE,
    RunCommand,
    export_obstacle,
    export_row,
    first_exportable,
    run_command,
)
from .slurm_job import resumable_job
