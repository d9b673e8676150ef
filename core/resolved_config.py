"""The configuration of one launch with every value decided.

The launcher resolves what the user left open; the runtime reads this and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import config_keys as keys
from .config_keys import read_zero_knobs
from .equations import require_global_batch, require_micro_batch_split
from .errors import ConfigError, nearest_known, plural, still_open
from .layout import KnobValue, Layout, Recompute
from .parallelism import read_parallelism, read_schedule, require_micro_batches
from .precision import Precision
from .raw_config import (
    KeyPath,
    RawConfig,
    dotted_name,
    flag_value,
    integer_value,
    number_value,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """An optimizer by DeepSpeed's name, and its parameters as given."""

    kind: str = "AdamW"
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """A learning-rate schedule by DeepSpeed's name, and its parameters as given."""

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """All that the runtime needs; 0 means no ``gradient_clipping``, a dynamic ``loss_scale``."""

    layout: Layout
    precision: Precision = Precision.FP32
    loss_scale: float = 0.0
    gradient_clipping: float = 0.0
    optimizer: OptimizerConfig | None = None
    scheduler: SchedulerConfig | None = None
    extras: tuple[tuple[str, KnobValue], ...] = ()


OPTIMIZERS = frozenset({"Adam", "AdamW", "SGD", "Adagrad", "RMSprop"})
LIST_VALUED = frozenset({"betas"})
"""Parameters whose one value is a list."""
SCHEDULERS = frozenset({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"})


def resolve(raw: RawConfig, *, world_size: int) -> ResolvedConfig:
    """Read a document in which nothing is left open.

    Raises:
        ConfigError: a value is open (a list or "auto"), wrong, contradicts another one, or
            asks for something that this runtime cannot apply.
    """
    keys.check_keys(raw)
    _refuse_inapplicable(raw)
    layout = _layout(raw, world_size)
    schedule = read_schedule(raw, layout)
    require_micro_batches(layout, schedule)
    return ResolvedConfig(
        layout=layout,
        precision=_precision(raw),
        loss_scale=number_value(raw, keys.LOSS_SCALE, 0.0),
        gradient_clipping=number_value(raw, keys.CLIPPING, 0.0),
        optimizer=_optimizer(raw),
        scheduler=_scheduler(raw),
        extras=(*schedule, *_recompute_layers(raw, layout), *_zero_knobs(raw, layout)),
    )


def _zero_knobs(raw: RawConfig, layout: Layout) -> tuple[tuple[str, KnobValue], ...]:
    return read_zero_knobs(
        raw,
        zero_stage=layout.zero_stage,
        data_parallel=layout.data_parallel * layout.context_parallel,
        model_ranks=layout.tensor_parallel * layout.pipeline_parallel * layout.expert_parallel,
    )


def _recompute_layers(raw: RawConfig, layout: Layout) -> tuple[tuple[str, KnobValue], ...]:
    layers = integer_value(raw, keys.RECOMPUTED, None)
    if layers is None:
        return ()
    if layout.recompute is not Recompute.FULL:
        raise ConfigError(
            f"{dotted_name(keys.RECOMPUTED)} is {layers}, but {dotted_name(keys.RECOMPUTE)} "
            f'is "{layout.recompute.value}"; set that to "full", or remove the layers.'
        )
    return (("recompute_layers", layers),)


def _layout(raw: RawConfig, world_size: int) -> Layout:
    degrees = read_parallelism(raw, world_size)
    micro, accumulation = batch_split(
        raw, data_parallel=degrees.data_parallel, split=degrees.micro_batch_split
    )
    stage = integer_value(raw, keys.ZERO_STAGE, 0, least=0)
    if stage > 3:
        raise ConfigError(f"zero_optimization.stage is {stage}, but ZeRO has stages 0 to 3.")
    return replace(
        degrees,
        zero_stage=stage,
        micro_batch=micro,
        accumulation=accumulation,
        recompute=_choice(raw, keys.RECOMPUTE, Recompute, Recompute.NONE),
    )


_MOST_SAMPLES = 2**40


def batch_split(
    raw: RawConfig, *, data_parallel: int, split: tuple[int, ...] | None = None
) -> tuple[int, int]:
    """Micro-batch and accumulation; what is missing follows from the other two (or is 1).

    ``split`` has the micro-batch of each data-parallel rank where they are uneven.

    Raises:
        ConfigError: these contradict each other, or ``train_batch_size`` cannot be split.
    """
    even = max(1, sum(split) // data_parallel) if split else None
    micro = integer_value(raw, keys.MICRO_BATCH, even)
    if split:
        require_micro_batch_split(split, micro_batch=micro, ranks=data_parallel)
    accumulation = integer_value(raw, keys.ACCUMULATION, None)
    stated = integer_value(raw, keys.TRAIN_BATCH_SIZE, None)
    if stated is not None:
        _require_multiple(stated, micro, accumulation, data_parallel)
        if micro is None and accumulation is None:
            accumulation = 1
        if micro is None:
            micro = max(1, stated // (data_parallel * (accumulation or 1)))
        if accumulation is None:
            accumulation = max(1, stated // (data_parallel * micro))
        require_global_batch(
            stated, micro_batch=micro, accumulation=accumulation, data_parallel=data_parallel
        )
    micro, accumulation = micro or 1, accumulation or 1
    if micro * accumulation * data_parallel > _MOST_SAMPLES:
        raise ConfigError(
            f"{micro} x {accumulation} x {data_parallel} samples (micro-batch, accumulation, data "
            f"parallelism) are more than a step can have ({_MOST_SAMPLES}); give fewer."
        )
    return micro, accumulation


def _require_multiple(
    stated: int, micro: int | None, accumulation: int | None, data_parallel: int
) -> None:
    """Raise a ConfigError if what is given beside a global batch does not divide it."""
    if micro is not None and accumulation is not None:
        return
    given = ((keys.MICRO_BATCH, micro), (keys.ACCUMULATION, accumulation))
    names = "".join(f"{dotted_name(path)} {number} x " for path, number in given if number)
    unit = (micro or 1) * (accumulation or 1) * data_parallel
    if stated % unit:
        below = stated - stated % unit
        near = f"{below} or {below + unit}" if below else str(unit)
        raise ConfigError(
            f"train_batch_size is {stated}, but must be a multiple of {unit} ({names}"
            f"{plural(data_parallel, 'data-parallel rank')}), such as {near}."
        )


def _refuse_inapplicable(raw: RawConfig) -> None:
    if raw.get(keys.PARALLELISM) == "all":
        raise ConfigError(still_open(dotted_name(keys.PARALLELISM), "all"))
    for key in sorted(keys.PARALLELISM_KEYS - keys.APPLIED_PARALLELISM):
        path = (*keys.PARALLELISM, key)
        if raw.get(path, 1) not in (1, False, None):
            raise ConfigError(
                f"{dotted_name(path)} is {raw.get(path)!r}, which this runtime cannot apply; "
                "remove it."
            )
    for key in sorted(keys.CHECKPOINTING_KEYS - {"mode", "layers", "profile"}):
        path = (keys.RECOMPUTE[0], key)
        if raw.get(path) not in (None, False, 0):
            raise ConfigError(
                f"{dotted_name(path)} is {raw.get(path)!r}, which this runtime cannot apply; use "
                'activation_checkpointing.mode: "none", "selective" or "full".'
            )
    for key in ("offload_param", "offload_optimizer"):
        path = (*keys.ZERO, key, "device")
        if raw.get(path) not in (None, "none"):
            raise ConfigError(
                f"{dotted_name(path)} is {raw.get(path)!r}, but this runtime cannot offload; "
                "remove it."
            )


def _precision(raw: RawConfig) -> Precision:
    bf16, fp16 = flag_value(raw, keys.BF16), flag_value(raw, keys.FP16)
    if bf16 and fp16:
        raise ConfigError("bf16.enabled and fp16.enabled are both true; enable one of them.")
    return Precision.BF16 if bf16 else Precision.FP16 if fp16 else Precision.FP32


def _optimizer(raw: RawConfig) -> OptimizerConfig | None:
    named = _named_section(raw, keys.OPTIMIZER, OPTIMIZERS)
    return OptimizerConfig(kind=named[0], parameters=named[1]) if named else None


def _scheduler(raw: RawConfig) -> SchedulerConfig | None:
    named = _named_section(raw, keys.SCHEDULER, SCHEDULERS)
    return SchedulerConfig(kind=named[0], parameters=named[1]) if named else None


def _named_section(
    raw: RawConfig, path: KeyPath, known: frozenset[str]
) -> tuple[str, tuple[tuple[str, Any], ...]] | None:
    if raw.get(path) is None:
        return None
    kind = raw.get((*path, "type"))
    by_lower_case = {name.lower(): name for name in known}
    if not isinstance(kind, str) or kind.lower() not in by_lower_case:
        hint = nearest_known(str(kind), known)
        raise ConfigError(f"{dotted_name(path)}.type is {kind!r}, which is unknown; {hint}")
    parameters = raw.get((*path, "params"), {})
    if not isinstance(parameters, dict):
        raise ConfigError(f"{dotted_name(path)}.params is {parameters!r}, but must be a section.")
    for name, value in parameters.items():
        _require_no_search(f"{dotted_name(path)}.params.{name}", name, value)
    return by_lower_case[kind.lower()], tuple(parameters.items())


def _require_no_search(where: str, name: str, value: object) -> None:
    """A list is a value only where the setting is one; nothing of these sections is searched."""
    if not isinstance(value, list):
        return
    if name not in LIST_VALUED or any(isinstance(item, list) for item in value):
        raise ConfigError(
            f"{where} is {value!r}, but optimizer and scheduler are never searched; "
            "give it one value."
        )


def _choice(
    raw: RawConfig, path: KeyPath, kinds: type[Recompute], default: Recompute
) -> Recompute:
    value = raw.get(path, default.value)
    known = {kind.value: kind for kind in kinds}
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{dotted_name(path)} is {value!r}; {nearest_known(str(value), known)}")
    return known[value]
