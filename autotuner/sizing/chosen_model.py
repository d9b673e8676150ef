"""From a family and a size to a shape, a batch and counts. Not: the file that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import Architecture, ConfigError

from ..cost import active_parameters, parameters
from .batch_size import BaseBatch, BatchQuestion, BatchRow, base_batch
from .families import Family, Rules
from .nemo_axes import GridRow
from .shapes import (
    Form,
    Shape,
    ShapeRow,
    architecture,
    most_text,
    nemo_parameters_b,
    own_shape,
    row_near,
    row_of,
    table_shape,
)

_CLOSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What NVIDIA's tools have as tables; ``grids`` of NeMo 2.0 alone, for its batches."""

    shapes: Mapping[Rules, Sequence[ShapeRow]]
    batches: Sequence[BatchRow]
    grids: Sequence[GridRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    """What is asked for.

    Attributes:
        batch: samples of a step, if they are given.
        may_exceed: a size above what the tables allow gets our shape, as one that was
            recommended and not chosen must.
    """

    family: Family
    size_b: float
    vocabulary: int
    sequence: int
    gpu_memory_gb: float
    batch: int | None = None
    may_exceed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """A model of the asked size.

    Attributes:
        nemo_count_b: as NVIDIA's formula counts; None where it knows no such family.
        exact_count: parameters of ``architecture``.
        active_count: of those, what one token passes.
        notes: what no table covers, and counts that differ.
    """

    asked: ModelQuestion
    shape: Shape
    architecture: Architecture
    batch: BaseBatch
    nemo_count_b: float | None
    exact_count: int
    active_count: int
    notes: tuple[str, ...]


def choose_model(tables: Tables, asked: ModelQuestion) -> ChosenModel:
    """Shape and batch by the tables; ours, with a note, where they have none.

    Raises:
        ConfigError: the size is above what the family allows, or no shape comes near it.
    """
    notes = [asked.family.unknown_note]
    shape = _by_table(tables, asked)
    if shape is None:
        shape = _own(tables, asked)
        notes.append(_own_note(tables, asked))
    model = counted_model(asked, shape, _batch(tables, asked))
    notes += [model.batch.note, _layout_note(model.batch), _count_note(model)]
    return replace(model, notes=tuple(note for note in notes if note))


def counted_model(
    asked: ModelQuestion, shape: Shape, batch: BaseBatch, form: Form | None = None
) -> ChosenModel:
    """A model of a known shape, in its own form or its family's, without notes."""
    model = architecture(asked.family, shape, asked.vocabulary, asked.sequence, form)
    rules = asked.family.rules
    return ChosenModel(
        asked=asked,
        shape=shape,
        architecture=model,
        batch=batch,
        nemo_count_b=(
            nemo_parameters_b(rules, shape, asked.vocabulary, asked.sequence) if rules else None
        ),
        exact_count=parameters(model),
        active_count=active_parameters(model),
        notes=(),
    )


def _by_table(tables: Tables, asked: ModelQuestion) -> Shape | None:
    rules = asked.family.rules
    if rules is None:
        return None
    rows = tables.shapes[rules]
    if asked.may_exceed and not any(row.covers(asked.size_b) for row in rows):
        return None
    row = row_of(rows, asked.size_b, asked.family.name)

    def count_b(shape: Shape) -> float:
        return nemo_parameters_b(rules, shape, asked.vocabulary, asked.sequence)

    return table_shape(row, asked.size_b, count_b)


def _own(tables: Tables, asked: ModelQuestion) -> Shape:
    row = row_near(tables.shapes[Rules.GPT], asked.size_b)

    def count_b(shape: Shape) -> float:
        model = architecture(asked.family, shape, asked.vocabulary, asked.sequence)
        return parameters(model) / 1e9

    shape = own_shape(asked.size_b, row.learning_rate, count_b)
    if shape is None:
        raise ConfigError(
            f"No shape of family {asked.family.name} has {asked.size_b:g} billion parameters with "
            f"a vocabulary of {asked.vocabulary} and {asked.sequence} tokens; give another size "
            "or a smaller vocabulary."
        )
    return shape


def _own_note(tables: Tables, asked: ModelQuestion) -> str:
    if asked.family.rules is None:
        return ""
    rows = tables.shapes[asked.family.rules]
    if not any(row.covers(asked.size_b) for row in rows):
        return (
            f"NVIDIA's tables for {asked.family.name} cover {most_text(rows)} B parameters; for "
            f"{asked.size_b:g} B the shape is our planner's."
        )
    return (
        f"No number of layers in NVIDIA's table gives {asked.size_b:g} B with a vocabulary of "
        f"{asked.vocabulary}; the shape is our planner's."
    )


def _batch(tables: Tables, asked: ModelQuestion) -> BaseBatch:
    found = base_batch(
        tables.batches,
        BatchQuestion(
            family=asked.family,
            size_b=asked.size_b,
            sequence=asked.sequence,
            gpu_memory_gb=asked.gpu_memory_gb,
        ),
        tables.grids,
    )
    if asked.batch is None or asked.batch == found.global_batch:
        return found
    return BaseBatch(
        global_batch=asked.batch,
        tensor=found.tensor,
        pipeline=found.pipeline,
        context=found.context,
        expert=found.expert,
    )


def _layout_note(batch: BaseBatch) -> str:
    if batch.tensor is not None or batch.note:
        return ""
    return "No table has degrees of parallelism for this model; autoconf-launch plan ranks them."


def _count_note(model: ChosenModel) -> str:
    exact_b, by_nemo = model.exact_count / 1e9, model.nemo_count_b
    off = exact_b / model.asked.size_b - 1
    if abs(off) <= _CLOSE:
        return ""
    formula_is_off = by_nemo is not None and abs(exact_b / by_nemo - 1) > _CLOSE
    why = (
        "the formula behind NVIDIA's table ignores gates, experts and grouped queries"
        if formula_is_off
        else "the first number of layers within a tenth is taken, as NVIDIA's tool does"
    )
    more = "more" if off > 0 else "fewer"
    return (
        f"This shape has {exact_b:.3g} B parameters, {100 * abs(off):.0f} % {more} than "
        f"requested: {why}."
    )
