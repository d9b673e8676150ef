"""From a family and a size to a shape, a batch and counts.

NeMo 1.0 has the global batch and a first layout in one table; NeMo 2.0 has the batch in its grids.
The table keeps the tokens of a step over all sequence lengths (256 x 2048 = 64 x 8192); so do we
if no row covers a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import Architecture, ConfigError

from ..cost import active_parameters, parameters
from .families import Family, Rules
from .nemo_axes import GridRow, SizedModel, rule_of
from .shapes import (
    Form,
    Shape,
    ShapeRow,
    architecture,
    form_of,
    form_of_model,
    most_text,
    nemo_parameters_b,
    own_shape,
    row_near,
    row_of,
    shape_of_model,
    table_shape,
)

_GPT_ROWS = "gpt3"
_USUAL_MEMORY_GB = 80
_CLOSE = 0.05
_SAME_SIZE = 0.02
"""Largest relative error of a shape made for a size."""
_WIDTH_STEP = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A row of the tables: all sizes up to a bound."""

    family: str
    gpu_memory_gb: int
    sequence: int
    bound_b: float
    global_batch: int
    tensor: int
    pipeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseBatch:
    """Samples of a step, and degrees to start from.

    Degrees are None if no table has them: a planner must choose. ``note`` names the source of the
    batch if no table has it.
    """

    global_batch: int
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    note: str = ""


def base_batch(
    rows: Sequence[BatchRow], asked: SizedModel, grids: Sequence[GridRow] = ()
) -> BaseBatch:
    """The tables' batch and degrees, or ours with a note that says so.

    Args:
        rows: NeMo 1.0's, for the degrees and, without ``grids``, the batch.
        asked: the model.
        grids: NeMo 2.0's, if its batch is wanted.
    """
    own = [row for row in rows if row.family == _rows_of(asked.family)]
    row = next((row for row in own if _covers(row, asked)), None)
    found = _by_tokens(own, asked) if row is None else _of_table(row)
    rule = rule_of(grids, asked)
    if rule is not None and rule.global_batch is not None:
        return replace(found, global_batch=rule.global_batch, note="")
    return _by_tokens(own, asked) if grids else found


def _covers(row: BatchRow, asked: SizedModel) -> bool:
    here = (row.gpu_memory_gb, row.sequence) == (asked.gpu_memory_gb, asked.sequence)
    return here and asked.size_b <= row.bound_b


def _of_table(row: BatchRow) -> BaseBatch:
    degrees = 1 if row.family == _GPT_ROWS else None
    return BaseBatch(
        global_batch=row.global_batch,
        tensor=row.tensor,
        pipeline=row.pipeline,
        context=degrees,
        expert=degrees,
    )


def _rows_of(family: Family) -> str:
    if family.is_encoder_decoder:
        return "t5/mt5"
    return "bert" if family.name == "bert" else _GPT_ROWS


def _by_tokens(own: Sequence[BatchRow], asked: SizedModel) -> BaseBatch:
    """The batch with the tokens that this size reads in a step at the shortest tabled sequence."""
    shortest = min(row.sequence for row in own)
    usual = [row for row in own if row.sequence == shortest]
    usual = [row for row in usual if row.gpu_memory_gb == _USUAL_MEMORY_GB]
    row = next((row for row in usual if asked.size_b <= row.bound_b), usual[-1])
    tokens = row.global_batch * shortest
    batch = max(1, tokens // asked.sequence)
    if batch * asked.sequence != tokens:
        batch = 1 << (batch.bit_length() - 1)
    read = batch * asked.sequence
    near = "as in the table" if read == tokens else f"near the table's {tokens}"
    return BaseBatch(
        global_batch=batch,
        note=(
            f"No table has a batch for {asked.size_b:g} B with {asked.sequence} tokens on "
            f"{asked.gpu_memory_gb:g} GB: using {batch} samples, {read} tokens per step, {near} "
            f"at {shortest}; the layout is the planner's."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Tables of NVIDIA's tools; ``grids`` only of NeMo 2.0, for its batches."""

    shapes: Mapping[Rules, Sequence[ShapeRow]]
    batches: Sequence[BatchRow]
    grids: Sequence[GridRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    """Options for the choice of a model.

    Attributes:
        batch: samples of a step, if given.
        may_exceed: a size above the tables' limit gets our shape, as for a recommended size.
        published: the model itself, if it is not chosen by its size.
        is_exact: the shape has exactly the requested size; otherwise it is NVIDIA's, whose formula
            ignores gates, experts and grouped queries.
    """

    family: Family
    size_b: float
    vocabulary: int
    sequence: int
    gpu_memory_gb: float
    batch: int | None = None
    may_exceed: bool = False
    published: Architecture | None = None
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """A model of the asked size.

    Attributes:
        nemo_count_b: count of NVIDIA's formula; None if it does not know the family.
        exact_count: parameters of ``architecture``.
        active_count: parameters that one token passes.
        notes: missing tables, and counts that differ.
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
    """Shape and batch by the tables; ours, with a note, if they have none.

    Raises:
        ConfigError: the size is above the family's limit, or no shape comes near it.
    """
    if asked.published is not None:
        return _choose_published(tables, asked, asked.published)
    notes = [asked.family.unknown_note]
    shape = _by_table(tables, asked)
    if shape is None:
        shape = _own(tables, asked)
        notes.append(_own_note(tables, asked))
    model = counted_model(asked, shape, _batch(tables, asked))
    if asked.is_exact and (note := _resized_note(model)):
        notes.append(note)
        model = counted_model(asked, _shape_of_size(tables, asked, shape), model.batch)
    notes += [model.batch.note, _layout_note(model.batch), _count_note(model)]
    return replace(model, notes=tuple(note for note in notes if note))


def _choose_published(tables: Tables, asked: ModelQuestion, model: Architecture) -> ChosenModel:
    """A model unchanged except for its vocabulary, with batch and learning rate of its size."""
    model = replace(model, vocabulary=asked.vocabulary)
    near = row_near(tables.shapes[Rules.GPT], asked.size_b)
    shape = shape_of_model(model, near.learning_rate)
    found = counted_model(asked, shape, _batch(tables, asked), form_of_model(model))
    notes = (found.batch.note, _layout_note(found.batch))
    return replace(
        found,
        architecture=model,
        exact_count=parameters(model),
        active_count=active_parameters(model),
        notes=tuple(note for note in notes if note),
    )


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


def _is_off(model: ChosenModel) -> bool:
    """True if NVIDIA's shape is another size: by its formula, or beyond a step of its layers."""
    exact_b, by_nemo = model.exact_count / 1e9, model.nemo_count_b
    is_formula_right = by_nemo is not None and abs(exact_b / by_nemo - 1) <= _SAME_SIZE
    allowed = _CLOSE if is_formula_right else _SAME_SIZE
    return abs(exact_b / model.asked.size_b - 1) > allowed


def _shape_of_size(tables: Tables, asked: ModelQuestion, shape: Shape) -> Shape:
    """NVIDIA's widths with the MLP, or the number of layers, that gives the asked size exactly.

    Ours, if neither does.
    """

    def off(one: Shape) -> float:
        model = architecture(asked.family, one, asked.vocabulary, asked.sequence)
        return abs(parameters(model) / 1e9 / asked.size_b - 1)

    form = form_of(asked.family)
    if form.experts:
        return _own(tables, asked)
    widths = range(_WIDTH_STEP, 6 * shape.hidden, _WIDTH_STEP)
    others = [replace(shape, layers=number) for number in range(1, 2 * shape.layers + 1)]
    if form.gated:
        others = [replace(shape, ffn=width) for width in widths if width >= shape.hidden]
    best = min(others, key=off, default=shape)
    return best if off(best) <= _SAME_SIZE else _own(tables, asked)


def nvidias_shape_note(tables: Tables, asked: ModelQuestion) -> str:
    """Note on the size that NVIDIA's tool would train instead; empty if equal."""
    shape = _by_table(tables, asked)
    return (
        "" if shape is None else _resized_note(counted_model(asked, shape, _batch(tables, asked)))
    )


def _resized_note(model: ChosenModel) -> str:
    if not _is_off(model):
        return ""
    by_nemo = model.nemo_count_b
    counted = f", which its formula counts as {by_nemo:.3g} B" if by_nemo is not None else ""
    return (
        f"NVIDIA's shape for {model.asked.size_b:g} B ({model.shape.layers} layers, hidden "
        f"{model.shape.hidden}, ffn {model.shape.ffn}) has {model.exact_count / 1e9:.3g} B "
        f"parameters{counted}; days and money are for a shape of the size that was asked."
    )


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
    found = base_batch(tables.batches, asked, tables.grids)
    if asked.batch is None or asked.batch == found.global_batch:
        return found
    return replace(found, global_batch=asked.batch, note="")


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
