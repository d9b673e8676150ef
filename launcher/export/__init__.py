"""An optimum, or a base configuration, in another framework's words."""

from .fasop import FASOP_SEPARATOR, FasopTable, fasop_rows
from .page import (
    HALVES,
    NEMO_DEGREES,
    Exported,
    Exporter,
    JobNode,
    NodeJob,
    Optimum,
    Page,
    comment_on,
    export_base,
    export_optimum,
    groups_told,
    splits_sequence,
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
