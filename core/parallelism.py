"""The section ``parallelism`` of a document: degrees, schedule and splits."""

from __future__ import annotations

from typing import Any

from . import config_keys as keys
from .equations import data_parallel_degree, divisors
from .errors import ConfigError, nearest_known, still_open
from .layout import KnobValue, Layout
from .raw_config import RawConfig, dotted_name, flag_value, integer_value

PIPELINE_SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""Orders of a pipeline's passes; the last one where each rank has several stages."""
_DEGREES = {
    "tensor_parallel": keys.TENSOR,
    "pipeline_parallel": keys.PIPELINE,
    "virtual_pipeline": keys.VIRTUAL_PIPELINE,
    "context_parallel": keys.CONTEXT,
    "expert_parallel": keys.EXPERT,
}


def read_parallelism(raw: RawConfig, world_size: int) -> Layout:
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


def read_schedule(raw: RawConfig, layout: Layout) -> tuple[tuple[str, KnobValue], ...]:
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


def require_micro_batches(layout: Layout, extras: tuple[tuple[str, KnobValue], ...]) -> None:
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
    """Why a model with so many repeated blocks has no such stages; None where it has."""
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
    """The schedule that runs: the one that is named, else 1F1B, interleaved or not."""
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
