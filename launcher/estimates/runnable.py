"""Which layouts our own runtime can run; the others are plan-only. Not: what fits."""

from __future__ import annotations

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.space import KNOBS
from autoconf_launch.core import BUILTIN_PRECISIONS, OPTIMIZERS, Layout, Workload

from ..dialects import SPELLINGS

_SPELLED = frozenset({"data_parallel", *(spelling.knob for spelling in SPELLINGS)})
_OTHERS = tuple(knob.name for knob in KNOBS if knob.name not in _SPELLED)
_PLAIN = Layout()


def is_runnable(layout: Layout, recompute_layers: int, workload: Workload) -> bool:
    """Whether the native dialect can say all of it: data parallelism, ZeRO and recomputation."""
    plain = all(getattr(layout, name) == getattr(_PLAIN, name) for name in _OTHERS)
    return plain and recompute_layers == ALL_LAYERS and _is_known(workload)


def _is_known(workload: Workload) -> bool:
    precise = workload.precision in BUILTIN_PRECISIONS
    optimizer = workload.optimizer in {name.lower() for name in OPTIMIZERS}
    return precise and optimizer and workload.lora_rank is None and not workload.frozen
