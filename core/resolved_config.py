"""The configuration of one launch with every value decided.

The launcher resolves the values that the user left open; the runtime reads this and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from . import config_keys as keys
from .equations import (
    data_parallel_degree,
    divisors,
    require_global_batch,
    require_micro_batch_split,
)
from .errors import ConfigError, nearest_known, plural, still_open
from .knobs import PIPELINE_SCHEDULES, read_runtime_knobs
from .layout import KnobValue, Layout, Precision, Recompute
from .raw_config import (
    KeyPath,
    RawConfig,
    dotted_name,
    flag_value,
    integer_value,
    number_value,
)

_MOST_SAMPLES = 2**40


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


_Section = TypeVar("_Section", OptimizerConfig, SchedulerConfig)


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
_DEGREES = {
    "tensor_parallel": keys.TENSOR,
    "pipeline_parallel": keys.PIPELINE,
    "virtual_pipeline": keys.VIRTUAL_PIPELINE,
    "context_parallel": keys.CONTEXT,
    "expert_parallel": keys.EXPERT,
}


def resolve(raw: RawConfig, *, world_size: int) -> ResolvedConfig:
    """Read a document in which nothing is left open.

    Raises:
        ConfigError: a value is open (a list or "auto"), wrong, contradicts another one, or
            asks for something that this runtime cannot apply.
    """
    keys.check_keys(raw)
    _refuse_inapplicable(raw)
    layout = _layout(raw, world_size)
    schedule = _read_schedule(raw, layout)
    _require_micro_batches(layout, schedule)
    return ResolvedConfig(
        layout=layout,
        precision=_precision(raw),
        loss_scale=number_value(raw, keys.LOSS_SCALE, 0.0),
        gradient_clipping=number_value(raw, keys.CLIPPING, 0.0),
        optimizer=_named_section(raw, keys.OPTIMIZER, OPTIMIZERS, OptimizerConfig),
        scheduler=_named_section(raw, keys.SCHEDULER, SCHEDULERS, SchedulerConfig),
        extras=(*schedule, *_recompute_layers(raw, layout), *_runtime_knobs(raw, layout)),
    )


def _runtime_knobs(raw: RawConfig, layout: Layout) -> tuple[tuple[str, KnobValue], ...]:
    return read_runtime_knobs(
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
    degrees = _read_parallelism(raw, world_size)
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
        recompute=_recompute(raw),
    )


def batch_split(
    raw: RawConfig, *, data_parallel: int, split: tuple[int, ...] | None = None
) -> tuple[int, int]:
    """Micro-batch and accumulation; a missing value follows from the other two (or is 1).

    ``split`` has the micro-batch of each data-parallel rank if they are uneven.

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
    """Raise a ConfigError if the values given with a global batch do not divide it."""
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
    for key in sorted(keys.CHECKPOINTING_KEYS - {"mode", "layers", "profile"}):
        path = (keys.RECOMPUTE[0], key)
        if raw.get(path) not in (None, False, 0):
            raise ConfigError(
                f"{dotted_name(path)} is {raw.get(path)!r}, which this runtime cannot apply; use "
                'activation_checkpointing.mode: "none", "selective" or "full".'
            )
    for key in ("offload_param", "offload_optimizer"):
        device: KeyPath = (*keys.ZERO, key, "device")
        if raw.get(device) not in (None, "none"):
            raise ConfigError(
                f"{dotted_name(device)} is {raw.get(device)!r}, but this runtime cannot offload; "
                "remove it."
            )


def _precision(raw: RawConfig) -> Precision:
    bf16, fp16 = flag_value(raw, keys.BF16), flag_value(raw, keys.FP16)
    if bf16 and fp16:
        raise ConfigError("bf16.enabled and fp16.enabled are both true; enable one of them.")
    return Precision.BF16 if bf16 else Precision.FP16 if fp16 else Precision.FP32


def _named_section(
    raw: RawConfig, path: KeyPath, known: frozenset[str], make: type[_Section]
) -> _Section | None:
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
    return make(kind=by_lower_case[kind.lower()], parameters=tuple(parameters.items()))


def _require_no_search(where: str, name: str, value: object) -> None:
    """A list is a value only if the setting is one; nothing of these sections is searched."""
    if not isinstance(value, list):
        return
    if name not in LIST_VALUED or any(isinstance(item, list) for item in value):
        raise ConfigError(
            f"{where} is {value!r}, but optimizer and scheduler are never searched; "
            "give it one value."
        )


def _recompute(raw: RawConfig) -> Recompute:
    value = raw.get(keys.RECOMPUTE, Recompute.NONE.value)
    known = {kind.value: kind for kind in Recompute}
    if not isinstance(value, str) or value not in known:
        where, hint = dotted_name(keys.RECOMPUTE), nearest_known(str(value), known)
        raise ConfigError(f"{where} is {value!r}; {hint}")
    return known[value]


def _read_parallelism(raw: RawConfig, world_size: int) -> Layout:
    """A layout with the degrees and splits that a document decides, and nothing else.

    Raises:
        ConfigError: a value is open or wrong, or the degrees do not multiply to the world.
    """
    degrees: dict[str, Any] = {
        field: integer_value(raw, path, 1) for field, path in _DEGREES.items()
    }
    tensor, pipeline = degrees["tensor_parallel"], degrees["pipeline_parallel"]
    data = data_parallel_degree(
        world_size, tensor=tensor, pipeline=pipeline, context=degrees["context_parallel"]
    )
    _require_stated_data(raw, data, degrees, world_size)
    _require_expert_ranks(degrees["expert_parallel"], data)
    _require_stages(raw, pipeline, degrees["virtual_pipeline"])
    return Layout(
        **degrees,
        data_parallel=data,
        sequence_parallel=_sequence_parallel(raw, tensor),
        pipeline_split=_split(raw, keys.PIPELINE_SPLIT[1]),
        micro_batch_split=_split(raw, keys.MICRO_BATCH_SPLIT[1]),
    )


def _read_schedule(raw: RawConfig, layout: Layout) -> tuple[tuple[str, KnobValue], ...]:
    """The schedule that a document names, as an extra of the candidate.

    Raises:
        ConfigError: it is open, unknown, or contradicts ``layout``.
    """
    given = raw.get(keys.PIPELINE_SCHEDULE)
    if given is None:
        return ()
    where = dotted_name(keys.PIPELINE_SCHEDULE)
    if isinstance(given, list) or given == "auto":
        raise ConfigError(still_open(where, given))
    if given not in PIPELINE_SCHEDULES:
        raise ConfigError(f"{where} is {given!r}; {nearest_known(str(given), PIPELINE_SCHEDULES)}")
    if layout.pipeline_parallel == 1:
        raise ConfigError(
            f"{where} is {given!r}, but one stage has no schedule; set parallelism.pipeline to at "
            "least 2, or remove it."
        )
    if (given == PIPELINE_SCHEDULES[-1]) != (layout.virtual_pipeline > 1):
        raise ConfigError(
            f"{where} is {given!r}, but parallelism.virtual_pipeline is "
            f'{layout.virtual_pipeline}; "interleaved" needs at least 2, the others need 1.'
        )
    return ((keys.PIPELINE_SCHEDULE[1], str(given)),)


def _require_micro_batches(layout: Layout, extras: tuple[tuple[str, KnobValue], ...]) -> None:
    """Check that a step has enough for its pipeline's schedule.

    Raises:
        ConfigError: it has too few, or ranks with several stages get unequal rounds.
    """
    stages, count = layout.pipeline_parallel, layout.accumulation
    schedule = pipeline_schedule(layout, extras)
    if stages == 1 or schedule == PIPELINE_SCHEDULES[0]:
        return
    given = f"{dotted_name(keys.ACCUMULATION)} is {count}, but parallelism.pipeline {stages}"
    if schedule == PIPELINE_SCHEDULES[-1] and count % stages:
        raise ConfigError(
            f"{given} with several stages on each rank needs a multiple of {stages} "
            "micro-batches; change it, or set parallelism.virtual_pipeline to 1."
        )
    if count < stages:
        raise ConfigError(
            f"{given} needs at least {stages} micro-batches under 1F1B; change it, or set "
            'parallelism.pipeline_schedule to "gpipe".'
        )


def stages_obstacle(layout: Layout, blocks: int) -> str | None:
    """The reason why a model of ``blocks`` blocks cannot have these stages; None if it can."""
    pipeline, virtual = layout.pipeline_parallel, layout.virtual_pipeline
    if pipeline > 1 and pipeline * virtual > blocks:
        each = f" x virtual_pipeline {virtual} = {pipeline * virtual} stages" * (virtual > 1)
        return (
            f"parallelism.pipeline is {pipeline}{each}, but the model has {blocks} repeated "
            f"blocks; use at most {blocks}{' stages' * (virtual > 1)}."
        )
    given = layout.pipeline_split
    if given is not None and sum(given) != blocks:
        return (
            f"parallelism.pipeline_split is {list(given)}, whose sum is {sum(given)}, but the "
            f"model has {blocks} repeated blocks; let it add up to {blocks}."
        )
    return None


def pipeline_schedule(layout: Layout, extras: tuple[tuple[str, KnobValue], ...]) -> str:
    """The schedule that runs: the named one, else 1F1B, interleaved or not."""
    one_by_one, interleaved = PIPELINE_SCHEDULES[1:]
    named = dict(extras).get(keys.PIPELINE_SCHEDULE[1])
    return str(named or (interleaved if layout.virtual_pipeline > 1 else one_by_one))


def _require_stated_data(raw: RawConfig, data: int, degrees: dict[str, int], world: int) -> None:
    stated = integer_value(raw, keys.DATA, data)
    if stated == data:
        return
    others = {keys.TENSOR[1]: degrees["tensor_parallel"]} | {
        path[1]: degrees[field]
        for field, path in _DEGREES.items()
        if path in (keys.PIPELINE, keys.CONTEXT) and degrees[field] > 1
    }
    named = " x ".join(f"{name} {degree}" for name, degree in others.items())
    raise ConfigError(
        f"parallelism.data is {stated}, but {world} ranks with {named} leave "
        f"{data} for data parallelism; remove it."
    )


def _require_expert_ranks(expert: int, data: int) -> None:
    if data % expert:
        valid = ", ".join(map(str, divisors(data)))
        raise ConfigError(
            f"parallelism.expert is {expert}, but expert ranks are data-parallel ranks and must "
            f"divide the {data} of them; use one of {valid}."
        )


def _require_stages(raw: RawConfig, pipeline: int, virtual: int) -> None:
    if virtual > 1 and pipeline == 1:
        raise ConfigError(
            f"parallelism.virtual_pipeline is {virtual}, but there is no pipeline; set "
            "parallelism.pipeline to at least 2, or remove it."
        )
    parts = _split(raw, keys.PIPELINE_SPLIT[1])
    if parts is not None and len(parts) != pipeline * virtual:
        each = f" x virtual_pipeline {virtual}" if virtual > 1 else ""
        raise ConfigError(
            f"parallelism.pipeline_split has {len(parts)} parts, but pipeline {pipeline}{each} = "
            f"{pipeline * virtual} stages; give the blocks of each stage."
        )


def _sequence_parallel(raw: RawConfig, tensor: int) -> bool:
    wanted = flag_value(raw, keys.SEQUENCE_PARALLELISM)
    if wanted and tensor == 1:
        raise ConfigError(
            "parallelism.sequence_parallel is true, but shares the norms out over tensor ranks; "
            "set parallelism.tensor to at least 2, or remove it."
        )
    return wanted


def _split(raw: RawConfig, key: str) -> tuple[int, ...] | None:
    path = (*keys.PARALLELISM, key)
    given: Any = raw.get(path)
    if given is None:
        return None
    if given in ("auto", "all") or (isinstance(given, list) and list in map(type, given)):
        raise ConfigError(still_open(dotted_name(path), given))
    if not isinstance(given, list) or not given or any(type(n) is not int or n < 1 for n in given):
        raise ConfigError(
            f"{dotted_name(path)} is {given!r}, but must be a list of whole numbers of at least 1."
        )
    return tuple(given)
