"""Values and files that launcher and ranks share; standard library only.

Both take away what a trial wrote among the user's files (``saved_paths``).
"""

from .cluster import GIB, ClusterSpec, Device, Node, NodeKind
from .codec import DecodeError, decode, encode
from .config_keys import PARALLELISM, PIPELINE_SCHEDULE, SCHEMA_KEY, ZERO
from .equations import (
    data_parallel_degree,
    data_rank,
    divisors,
    even_pipeline_split,
    external_data_parallel_degree,
    global_batch,
    pareto_front,
    require_global_batch,
)
from .errors import (
    SECRETS_VARIABLE,
    AutoconfError,
    ConfigError,
    Failure,
    FailureKind,
    HardwareError,
    NothingFeasibleError,
    ResultsFolderError,
    SecretFilter,
    nearest_known,
    one_line,
    plural,
    visible,
)
from .faces import attach
from .knobs import (
    EXTRAS,
    FIRST_FSDP_STAGE,
    KNOBS,
    LAYOUT_KNOBS,
    OFFLOAD_EXTRAS,
    PIPELINE_SCHEDULES,
    RUNTIME_KNOBS,
    SPELLED,
    ZERO_STAGES,
    Knob,
    LayoutValue,
    Naming,
    parse_value,
)
from .layout import ALL_LAYERS, Candidate, Degrees, KnobValue, Layout, Offload, Recompute
from .model_spec import (
    Architecture,
    BlockSpec,
    DegreeLimits,
    Experts,
    GemmShape,
    Grade,
    LatentAttention,
    MicroBatchTiming,
    ModelSpec,
    SplitPart,
    StateMixer,
    TracedPeak,
)
from .precision import BUILTIN_PRECISIONS, Precision
from .rank import (
    CONTEXT_BYTES,
    DECODE,
    DOCTOR_MARK,
    END_FILE,
    FIRST_FORWARD_FILE,
    INPUT_LEN,
    JOB_VARIABLE,
    MODEL_INFO_FILE,
    OUTPUT_LEN,
    PREFILL,
    PROBE_VARIABLE,
    SIGNS_FOLDER,
    STEPS_FILE,
    TASK_VARIABLE,
    AppliedStrategy,
    Bystander,
    CutStep,
    FirstForward,
    GenerationTask,
    MemoryUse,
    Mode,
    OperationCost,
    RankResult,
    RankTask,
    Sign,
    StepRecord,
    compile_sign,
    real_time,
    result_file,
    sign_path,
    turn_file,
    unfinished_sign,
)
from .raw_config import Edit, KeyPath, RawConfig, dotted_name, integer_value
from .resolved_config import (
    LIST_VALUED,
    OPTIMIZERS,
    SCHEDULERS,
    OptimizerConfig,
    ResolvedConfig,
    SchedulerConfig,
    batch_split,
    pipeline_schedule,
    resolve,
    stages_obstacle,
)
from .saved_paths import (
    OUTPUT,
    SAVED,
    Aside,
    Asides,
    WentOn,
    drop_notes,
    is_checkpoint,
    is_part,
    is_trials,
    mirror,
    note,
    noted_folders,
    noted_paths,
    notes_of,
    of_all_ranks,
    take_in,
    take_in_all,
)
from .workload import (
    OPTIMIZER_STATES,
    Framework,
    FrozenPart,
    FrozenPasses,
    Optimizer,
    Software,
    WeightFormat,
    Workload,
)
