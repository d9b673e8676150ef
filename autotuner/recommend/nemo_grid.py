"""The values that NVIDIA's tools put on each axis of their grids. Not: which points are valid.

A grid that no rule covers is the class defaults of the tool, and says that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import ConfigError

from .families import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRange:
    """All numbers of stages that a model can have, from ``least`` to ``most``."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """Axes for sizes up to a bound; the class defaults have no bound.

    Attributes:
        rules: ``gpt_like``, ``t5`` (mT5 too) or ``bert``.
        sequence: None for any.
        least_product, most_product: of all degrees of model parallelism.
        global_batch: what NeMo 2.0 recommends beside it; 1.0 has none here.
    """

    rules: str
    gpu_memory_gb: int
    sequence: int | None
    bound_b: float | None
    tensor: tuple[int, ...]
    pipeline: tuple[int, ...] | PipelineRange
    micro_batch: tuple[int, ...]
    least_product: int
    most_product: int
    global_batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridQuestion:
    """What a grid is asked for; ``layers`` of T5 are those of one stack."""

    family: Family
    size_b: float
    layers: int
    sequence: int
    gpu_memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Values of each axis, ascending as the tool has them.

    ``note`` says so where no rule covers the question and these are the class defaults.
    """

    tensor: tuple[int, ...]
    pipeline: tuple[int, ...]
    micro_batch: tuple[int, ...]
    least_product: int
    most_product: int
    context: tuple[int, ...] = (1,)
    expert: tuple[int, ...] = (1,)
    global_batch: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOverrides:
    """What a user set; None (or "auto") leaves the rule's value."""

    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    context: tuple[int, ...] | None = None
    expert: tuple[int, ...] | None = None
    least_product: int | None = None
    most_product: int | None = None


def nemo_grid(
    rows: Sequence[GridRow], asked: GridQuestion, overrides: GridOverrides | None = None
) -> Grid | None:
    """The grid of one generation's rules; None where it has none for this memory or family.

    Args:
        rows: of NeMo 1.0 or 2.0.
        asked: the model.
        overrides: values that take the place of the rule's.

    Raises:
        ConfigError: the size is above all rules of a family that has no defaults.
    """
    name = _rules_of(asked.family)
    own = [row for row in rows if (row.rules, row.gpu_memory_gb) == (name, asked.gpu_memory_gb)]
    if not own:
        return None
    row = next((row for row in own if _covers(row, asked)), None)
    if row is None:
        most = max(row.bound_b or 0.0 for row in own)
        raise ConfigError(
            f"A model of family {asked.family.name} must have at most {most:g} billion "
            f"parameters, but {asked.size_b:g} was asked."
        )
    return _overridden(_grid(row, asked), overrides or GridOverrides())


def stages_of(layers: int, *, is_encoder_decoder: bool) -> tuple[int, ...]:
    """Numbers of pipeline stages that NVIDIA's rules allow; T5's count both stacks."""
    divisors = [number for number in range(1, layers + 1) if layers % number == 0]
    return (1, *(2 * number for number in divisors)) if is_encoder_decoder else tuple(divisors)


def _rules_of(family: Family) -> str:
    if family.is_encoder_decoder:
        return "t5"
    if not family.is_known:
        return ""
    return "bert" if family.name == "bert" else "gpt_like"


def _covers(row: GridRow, asked: GridQuestion) -> bool:
    right_length = row.sequence in (None, asked.sequence)
    return right_length and (row.bound_b is None or asked.size_b <= row.bound_b)


def _grid(row: GridRow, asked: GridQuestion) -> Grid:
    stages = row.pipeline
    if isinstance(stages, PipelineRange):
        possible = stages_of(asked.layers, is_encoder_decoder=asked.family.is_encoder_decoder)
        stages = tuple(n for n in possible if stages.least <= n <= stages.most)
    return Grid(
        tensor=row.tensor,
        pipeline=stages,
        micro_batch=row.micro_batch,
        least_product=row.least_product,
        most_product=row.most_product,
        global_batch=row.global_batch,
        note="" if row.bound_b is not None else _default_note(asked),
    )


def _default_note(asked: GridQuestion) -> str:
    return (
        f"NeMo has no rule for {asked.family.name} of {asked.size_b:g} B with {asked.sequence} "
        f"tokens on {asked.gpu_memory_gb:g} GB; grid=nemo falls to the defaults of its class, "
        "grid=planner covers it."
    )


def _overridden(grid: Grid, overrides: GridOverrides) -> Grid:
    return replace(
        grid,
        tensor=overrides.tensor or grid.tensor,
        pipeline=overrides.pipeline or grid.pipeline,
        micro_batch=overrides.micro_batch or grid.micro_batch,
        context=overrides.context or grid.context,
        expert=overrides.expert or grid.expert,
        least_product=overrides.least_product or grid.least_product,
        most_product=overrides.most_product or grid.most_product,
    )
