"""Which layouts our own runtime can run; the others are plan-only. Not: what fits."""

from __future__ import annotations

from autoconf_launch.autotuner.cost import ALL_LAYERS, TrainingSetup
from autoconf_launch.autotuner.space import KNOBS
from autoconf_launch.core import NATIVE_PRECISIONS, OPTIMIZERS, Layout

from ..dialects import SPELLINGS

_SPELLED = frozenset({"data_parallel", *(spelling.knob for spelling in SPELLINGS)})
_OTHERS = tuple(knob.name for knob in KNOBS if knob.name not in _SPELLED)
_PLAIN = Layout()


def is_runnable(layout: Layout, recompute_layers: int, setup: TrainingSetup) -> bool:
    """Whether the native dialect can say all of it: data parallelism, ZeRO and recomputation."""
    plain = all(getattr(layout, name) == getattr(_PLAIN, name) for name in _OTHERS)
    return plain and recompute_layers == ALL_LAYERS and _is_known(setup)


def _is_known(setup: TrainingSetup) -> bool:
    precise = setup.precision in NATIVE_PRECISIONS
    optimizer = setup.optimizer in {name.lower() for name in OPTIMIZERS}
    return precise and optimizer and setup.lora_rank is None and not setup.frozen
