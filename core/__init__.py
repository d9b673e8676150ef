"""What both sides of a launch agree on; standard library only. Not: decisions, nor other actions.

Both take away what a trial wrote among the user's files (``saved_paths``).
"""

from .architecture import Architecture, Experts, LatentAttention
from .cluster import ClusterSpec, Device, Node
from .codec import DecodeError, decode, encode
from .equations import (
    data_parallel_degree,
    foreign_data_parallel_degree,
    global_batch,
    require_global_batch,
)
from .errors import (
    AutoconfError,
    ConfigError,
    HardwareError,
    NothingFeasibleError,
    ResultsFolderError,
    nearest_known,
)
from .failures import Failure, FailureKind
from .layout import Candidate, KnobValue, Layout, Offload, Recompute
from .model_spec import BlockSpec, GemmShape, Grade, MicroBatchTiming, ModelSpec, TracedPeak
from .precision import NATIVE_PRECISIONS, Precision
from .rank import (
    AppliedStrategy,
    CutStep,
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
    StepRecord,
    result_file,
)
from .raw_config import Edit, KeyPath, RawConfig, dotted
from .resolved_config import (
    OptimizerConfig,
    ResolvedConfig,
    SchedulerConfig,
    batch_split,
    resolve,
)
from .zero_knobs import ZERO_KNOBS, ZeroKnob

__all__ = [
    "NATIVE_PRECISIONS",
    "ZERO_KNOBS",
    "AppliedStrategy",
    "Architecture",
    "AutoconfError",
    "BlockSpec",
    "Candidate",
    "ClusterSpec",
    "ConfigError",
    "CutStep",
    "DecodeError",
    "Device",
    "Edit",
    "Experts",
    "Failure",
    "FailureKind",
    "GemmShape",
    "Grade",
    "HardwareError",
    "KeyPath",
    "KnobValue",
    "LatentAttention",
    "Layout",
    "MemoryUse",
    "MicroBatchTiming",
    "Mode",
    "ModelSpec",
    "Node",
    "NothingFeasibleError",
    "Offload",
    "OptimizerConfig",
    "Precision",
    "RankResult",
    "RankTask",
    "RawConfig",
    "Recompute",
    "ResolvedConfig",
    "ResultsFolderError",
    "SchedulerConfig",
    "StepRecord",
    "TracedPeak",
    "ZeroKnob",
    "batch_split",
    "data_parallel_degree",
    "decode",
    "dotted",
    "encode",
    "foreign_data_parallel_degree",
    "global_batch",
    "nearest_known",
    "require_global_batch",
    "resolve",
    "result_file",
]
