"""The values that NVIDIA's tools put on each axis of their grids.

If no rule covers a model, NVIDIA's tools silently use the defaults of a class. Here such a model
has no grid, with two exceptions: a model whose search NVIDIA ships, which is made to run on those
defaults, and a model for which a user lists every axis. Both say that no rule covers it.

Source: NeMo-Framework-Launcher, auto_configurator, ``_set_activations_checkpoint_params`` (24.12);
its lists hold some values twice, ours each once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from autoconf_launch.core import ConfigError, Degrees, divisors

from .families import KNOWN_FAMILIES, Family

BLOCK = "block"
_INTERLEAVED_ABOVE = 2
_INTERVAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """Axes for sizes up to a bound; the defaults of a class have no bound.

    Attributes:
        rules: ``gpt_like``, ``t5`` (mT5 too) or ``bert``.
        sequence: None for any, up to ``most_sequence`` if it is set.
        degrees: tensor and pipeline degrees, micro-batches, and bounds of the product.
        stages: the least and the most pipeline stages, if they depend on a model's layers.
        global_batch: NeMo 2.0's recommendation; 1.0 has none here.
    """

    rules: str
    gpu_memory_gb: int
    sequence: int | None
    bound_b: float | None
    degrees: Degrees
    stages: tuple[int, int] | None
    global_batch: int | None
    most_sequence: int | None = None


class SizedModel(Protocol):
    """Facts that a rule reads."""

    @property
    def family(self) -> Family:
        """The family whose rules hold."""

    @property
    def size_b(self) -> float:
        """Billions of parameters."""

    @property
    def sequence(self) -> int:
        """Tokens of a sample."""

    @property
    def gpu_memory_gb(self) -> float:
        """Memory of one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridQuestion:
    """The model, batch and GPUs that a grid is for.

    Attributes:
        layers: of T5 in one stack.
        is_shipped: whether NVIDIA ships a search of this family, size and sequence.
        method: the base configuration's ``activations_checkpoint_method``.
    """

    family: Family
    size_b: float
    layers: int
    sequence: int
    gpu_memory_gb: float
    is_shipped: bool = False
    heads: int = 1
    global_batch: int = 1
    gpus: int = 1
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Values of each axis, ascending as the tool has them.

    ``note`` says so if no rule covers the question; else "".
    """

    degrees: Degrees
    global_batch: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRule:
    """A model without a grid of NVIDIA's; ``why`` is a clause: what is not covered, what is."""

    why: str

    @property
    def sentence(self) -> str:
        """A sentence for a search, which then goes to the planner."""
        return f"{self.why}; the candidates are the planner's."


def nemo_grid(
    rows: Sequence[GridRow], asked: GridQuestion, given: Degrees | None = None
) -> Grid | NoRule:
    """The grid of one generation's rules.

    Args:
        rows: of NeMo 1.0 or 2.0.
        asked: the model.
        given: values that take the place of the rule's.

    Raises:
        ConfigError: the size is above all rules of a family that has no defaults.
    """
    given, name = given or Degrees(), _rules_of(asked.family)
    own = [row for row in rows if (row.rules, row.gpu_memory_gb) == (name, asked.gpu_memory_gb)]
    if not own:
        return NoRule(why=_why_uncovered(rows, asked))
    rule = rule_of(rows, asked)
    if rule is not None:
        return _grid(rule, asked, given)
    defaults = next((row for row in own if row.bound_b is None), None)
    why = _why_uncovered(rows, asked)
    if defaults is None and asked.size_b > _most_b(own):
        raise ConfigError(_too_large(own, asked))
    if defaults is not None and asked.is_shipped:
        note = f"{why}; NVIDIA ships a search of it, which runs on the defaults of its tool."
        return replace(_grid(defaults, asked, given), note=note)
    return _listed_grid(given, why) or NoRule(why=why)


def rule_of(rows: Sequence[GridRow], asked: SizedModel) -> GridRow | None:
    """The first row that covers family, memory, sequence and size; defaults cover nothing."""
    name = _rules_of(asked.family)
    own = (row for row in rows if (row.rules, row.gpu_memory_gb) == (name, asked.gpu_memory_gb))
    return next((row for row in own if _covers(row, asked)), None)


def stages_of(layers: int, *, is_encoder_decoder: bool) -> tuple[int, ...]:
    """Numbers of pipeline stages that NVIDIA's rules allow; T5's count both stacks."""
    found = divisors(layers)
    return (1, *(2 * number for number in found)) if is_encoder_decoder else found


def _rules_of(family: Family) -> str:
    if family.is_encoder_decoder:
        return "t5"
    if not family.is_known:
        return ""
    return "bert" if family.name == "bert" else "gpt_like"


def _covers(row: GridRow, asked: SizedModel) -> bool:
    is_size = row.bound_b is not None and asked.size_b <= row.bound_b
    return is_size and _has_length(row, asked.sequence)


def _has_length(row: GridRow, sequence: int) -> bool:
    if row.sequence is not None:
        return row.sequence == sequence
    return row.most_sequence is None or sequence <= row.most_sequence


def _most_b(rows: Sequence[GridRow]) -> float:
    return max(row.bound_b or 0.0 for row in rows)


def _too_large(own: Sequence[GridRow], asked: GridQuestion) -> str:
    most_b = _most_b(own)
    return f"{asked.family.name} supports at most {most_b:g} B parameters, got {asked.size_b:g} B."


def _why_uncovered(rows: Sequence[GridRow], asked: GridQuestion) -> str:
    """The first of family, memory, sequence and size that no rule has, and those that they do."""
    family, name = asked.family.name, _rules_of(asked.family)
    own = [row for row in rows if row.rules == name and row.bound_b is not None]
    if not own:
        families = ", ".join(sorted(KNOWN_FAMILIES))
        return f"NeMo has no rule for the family {family}: its rules are for {families}"
    where = f"on {asked.gpu_memory_gb:g} GB"
    memories = sorted({row.gpu_memory_gb for row in own})
    own = [row for row in own if row.gpu_memory_gb == asked.gpu_memory_gb]
    if not own:
        sizes = " and ".join(map(str, memories))
        return f"NeMo has no rule for {family} {where}: its rules are for {sizes} GB"
    where = f"with {asked.sequence} tokens {where}"
    lengths = _lengths(own)
    own = [row for row in own if _has_length(row, asked.sequence)]
    if not own:
        known = ", ".join(lengths)
        return f"NeMo has no rule for {family} {where}: its rules are for {known} tokens"
    return (
        f"NeMo has no rule for {family} of {asked.size_b:g} B {where}: its rules end at "
        f"{_most_b(own):g} B"
    )


def _lengths(rows: Sequence[GridRow]) -> list[str]:
    exact = sorted({row.sequence for row in rows if row.sequence is not None})
    most = sorted({row.most_sequence for row in rows if row.most_sequence is not None})
    return [*map(str, exact), *(f"at most {length}" for length in most)]


def _grid(row: GridRow, asked: GridQuestion, given: Degrees) -> Grid:
    degrees = row.degrees
    if row.stages:
        least, most = row.stages
        possible = stages_of(asked.layers, is_encoder_decoder=asked.family.is_encoder_decoder)
        stages = tuple(number for number in possible if least <= number <= most)
        degrees = replace(degrees, pipeline_parallel=stages)
    return Grid(degrees=degrees.override(given), global_batch=row.global_batch)


def _listed_grid(given: Degrees, why: str) -> Grid | None:
    """The user's own lists; None if one is left to rules.

    Unbounded products follow from the lists, as in NeMo 2.0's fine-tuning.
    """
    if None in (given.tensor_parallel, given.pipeline_parallel, given.micro_batch):
        return None
    bounds = Degrees(
        least_product=math.prod(map(min, given.mesh_axes)),
        most_product=math.prod(map(max, given.mesh_axes)),
    )
    note = f"{why}; all sizes to search are given, so that none is needed."
    return Grid(degrees=bounds.override(given), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeChoices:
    """Values of each dimension; (None,) if it is unused.

    Attributes:
        virtual: layers of a stage as virtual stages; None without interleaving.
        layers: checkpointed in each (virtual) stage.
        micro_batches: number of the micro-batches in flight that checkpoint.
        layers_per_pipeline: checkpointed in each stage.
    """

    virtual: int | None
    layers: tuple[int | None, ...] = (None,)
    micro_batches: tuple[int | None, ...] = (None,)
    layers_per_pipeline: tuple[int | None, ...] = (None,)


def recompute_choices(
    family: Family, size_b: float, layers: int, *, pipeline: int, method: str | None
) -> RecomputeChoices:
    """Values that the grid tries on a pipeline; none if the file names no method.

    Args:
        family: of the model.
        size_b: billions of parameters.
        layers: layers; for T5 of one stack.
        pipeline: stages.
        method: the file's ``activations_checkpoint_method``.
    """
    is_gpt = not family.is_encoder_decoder
    virtual = layers // pipeline if is_gpt and pipeline > _INTERLEAVED_ABOVE else None
    if method != BLOCK:
        return RecomputeChoices(virtual=virtual)
    every, interval = layers * (1 if is_gpt else 2), _interval(size_b, pipeline)
    tried = range(0, every // pipeline // (virtual or 1) + 1, 1 if virtual else interval)
    if pipeline == 1 or not is_gpt:
        return RecomputeChoices(virtual=virtual, layers=tuple(tried))
    micro_batches, most_layers = _interleaved_checkpoints(every, pipeline, virtual)
    return RecomputeChoices(
        virtual=virtual,
        layers=tuple(tried),
        micro_batches=micro_batches,
        layers_per_pipeline=tuple(range(0, most_layers + 1, interval)),
    )


def _interval(size_b: float, pipeline: int) -> int:
    """Layers between two values: larger models try fewer."""
    if size_b >= 60:
        steps = 32
    elif size_b >= 11.3:
        steps = 16
    else:
        steps = 8 if size_b >= 1 else 4
    return max(1, steps // pipeline)


def _interleaved_checkpoints(
    layers: int, stages: int, virtual: int | None
) -> tuple[tuple[int | None, ...], int]:
    """Micro-batches that checkpoint, and the most layers of a stage that do."""
    if virtual is None:
        most, step, most_layers = stages, 1, layers
    else:
        most = stages * (virtual - 1) + (stages - 1) * 2 + 1
        step = virtual * _INTERVAL
        most_layers = layers // stages // virtual + 1
    numbers = dict.fromkeys(max(1, number) for number in range(0, most + 1, step))
    return tuple(numbers), most_layers
