"""Layers, widths and learning rate of a model of some size.

NVIDIA's tables give the widths; its search of five passes gives the layers.

GPT's omits the width of the MLP, gates, experts and grouped queries.
Source: NeMo-Framework-Launcher, auto_configurator, ``_calculate_model_size`` (24.12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.core import Architecture, ConfigError, Experts

from .families import Family, Rules

CountB: TypeAlias = Callable[["Shape"], float]
"""Billions of parameters of a shape."""
_STEP = 0.01
_PASSES: tuple[tuple[Sequence[int], int], ...] = (
    (tuple(2**power for power in range(1, 10)), 10),
    (range(16, 193, 16), 6),
    (range(2, 201, 2), 6),
    (range(5, 201, 5), 6),
    (range(1, 200), 10),
)
"""Numbers of layers to try, and how often the margin is widened by a hundredth."""
_RATIO = 100.0
"""Width over layers that our own shapes come near: losses are flat around it (Kaplan et al. 2020,
"Scaling Laws for Neural Language Models", figure 5)."""
_RATIO_WEIGHT = 0.02
_MOST_LAYERS = 256
EXPERTS_PER_TOKEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths of a transformer; ``kv`` is the width of one head."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    kv: int
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """Widths of all sizes below a bound, or up to it if ``inclusive``.

    ``ffn`` and ``kv`` are None if they follow: four times hidden, and hidden by heads.
    """

    bound_b: float
    inclusive: bool
    hidden: int
    heads: int
    ffn: int | None
    kv: int | None
    learning_rate: float

    def covers(self, size_b: float) -> bool:
        """True if a size is on this side of the bound."""
        return size_b < self.bound_b or (self.inclusive and size_b == self.bound_b)


def row_of(rows: Sequence[ShapeRow], size_b: float, family: str) -> ShapeRow:
    """The first row that covers a size.

    Raises:
        ConfigError: the size is above the last bound.
    """
    for row in rows:
        if row.covers(size_b):
            return row
    raise ConfigError(f"{family} supports {most_text(rows)} B parameters, got {size_b:g} B.")


def most_text(rows: Sequence[ShapeRow]) -> str:
    """``at most 250`` or ``less than 1105``: billions that the last row covers."""
    last = rows[-1]
    return f"{'at most' if last.inclusive else 'less than'} {last.bound_b:g}"


def row_near(rows: Sequence[ShapeRow], size_b: float) -> ShapeRow:
    """The first row that covers a size, or the last."""
    return next((row for row in rows if row.covers(size_b)), rows[-1])


def table_shape(row: ShapeRow, size_b: float, count_b: CountB) -> Shape | None:
    """The row's widths with as many layers as give the size; None if no number does."""
    shape = Shape(
        layers=1,
        hidden=row.hidden,
        heads=row.heads,
        ffn=row.ffn or 4 * row.hidden,
        kv=row.kv or row.hidden // row.heads,
        learning_rate=row.learning_rate,
    )
    layers = layers_for(size_b, lambda number: count_b(replace(shape, layers=number)))
    return replace(shape, layers=layers) if layers else None


def layers_for(size_b: float, count_b: Callable[[int], float]) -> int | None:
    """The first number of layers whose count is within the margin, in NVIDIA's order.

    Args:
        size_b: billions of parameters.
        count_b: the same for a number of layers.
    """
    for numbers, tries in _PASSES:
        counts = [(number, count_b(number)) for number in numbers]
        margin = _STEP
        for _ in range(tries):
            low, high = size_b * (1 - margin), size_b * (1 + margin)
            if found := next((number for number, count in counts if low < count < high), None):
                return found
            margin += _STEP
    return None


def own_shape(size_b: float, learning_rate: float, count_b: CountB) -> Shape | None:
    """Our shape for a size that no table covers; None if none comes within a tenth.

    Args:
        size_b: billions of parameters.
        learning_rate: of a model of that size.
        count_b: exact count.
    """
    ranked = [
        (_misfit(shape, size_b, count_b), shape)
        for hidden in _widths()
        for shape in _nearest_layers(hidden, size_b, learning_rate, count_b)
    ]
    _, best = min(ranked, key=lambda pair: pair[0])
    return best if abs(count_b(best) / size_b - 1) < 0.1 else None


def _nearest_layers(
    hidden: int, size_b: float, learning_rate: float, count_b: CountB
) -> Iterable[Shape]:
    head = 128 if hidden % 128 == 0 and hidden >= 1024 else min(64, hidden)
    one = Shape(
        layers=1,
        hidden=hidden,
        heads=hidden // head,
        ffn=4 * hidden,
        kv=head,
        learning_rate=learning_rate,
    )
    first = count_b(one)
    layer = count_b(replace(one, layers=2)) - first
    wanted = 1 + round((size_b - first) / layer)
    if 1 <= wanted <= _MOST_LAYERS:
        yield replace(one, layers=wanted)
    yield one


def _misfit(shape: Shape, size_b: float, count_b: CountB) -> float:
    ratio = shape.hidden / shape.layers / _RATIO
    return abs(math.log(count_b(shape) / size_b)) + _RATIO_WEIGHT * abs(math.log(ratio))


def _widths() -> list[int]:
    return [32, *range(64, 1024, 64), *range(1024, 8192, 256), *range(8192, 40961, 1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Common traits of a family's models besides their widths, or traits of one model.

    Attributes:
        groups: heads for keys and values if they divide the others; 0: as many as the others.
        experts: of which some see each token; 0: none.
        expert_ffn: width of an expert; 0: the MLP's width.
        shared_ffn: width of the shared expert; 0: none.
        first_dense, every: leading layers without experts, and the spacing of layers with experts.
    """

    gated: bool = True
    biases: bool = False
    learned_positions: bool = False
    tied: bool = False
    groups: int = 0
    experts: int = 0
    experts_per_token: int = EXPERTS_PER_TOKEN
    expert_ffn: int = 0
    shared_ffn: int = 0
    first_dense: int = 0
    every: int = 1


_LLAMA = Form(groups=8)
FORMS = {
    "gpt3": Form(gated=False, biases=True, learned_positions=True, tied=True),
    "bert": Form(gated=False, biases=True, learned_positions=True, tied=True),
    "t5": Form(biases=True, learned_positions=True, tied=True),
    "mt5": Form(biases=True, learned_positions=True, tied=True),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": Form(groups=8, experts=8),
    "gemma": Form(tied=True),
    "nemotron": Form(gated=False, groups=8),
    "qwen": Form(),
    "qwen2": Form(),
    "baichuan2": Form(),
    "chatglm": Form(groups=2),
    "starcoder": Form(gated=False, biases=True, tied=True, groups=4),
}
"""As in NeMo's own configurations of each family (24.12); others are taken to be like Llama."""


def form_of(family: Family) -> Form:
    """The family's form; Llama's for an unknown family."""
    return FORMS.get(family.name, _LLAMA)


def shape_of_model(model: Architecture, learning_rate: float = 0.0) -> Shape:
    """The widths of a published model."""
    return Shape(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        ffn=model.ffn,
        kv=model.head,
        learning_rate=learning_rate,
    )


def form_of_model(model: Architecture) -> Form:
    """The form of a published model."""
    experts = model.experts
    form = Form(
        gated=model.gated,
        biases=model.biases,
        learned_positions=model.positions > 0,
        tied=model.tied_embeddings,
        groups=model.kv_heads,
    )
    if experts is None:
        return form
    return replace(
        form,
        experts=experts.count,
        experts_per_token=experts.per_token,
        expert_ffn=experts.ffn,
        shared_ffn=experts.shared * experts.ffn,
        first_dense=experts.first_dense,
        every=experts.every,
    )


def key_value_heads(family: Family, heads: int) -> int:
    """Groups of queries, if they divide the heads."""
    return _groups(form_of(family), heads)


def architecture(
    family: Family, shape: Shape, vocabulary: int, sequence: int, form: Form | None = None
) -> Architecture:
    """The model that a base configuration of this shape describes.

    T5 has the stated number of layers in its encoder and again in its decoder.

    Args:
        family: whose form it has by default.
        shape: its widths.
        vocabulary: rows of the embedding.
        sequence: tokens of a sample, for learned positions.
        form: the model's own.
    """
    form, hidden = form or form_of(family), shape.hidden
    is_bert = family.name == "bert"
    return Architecture(
        name=family.name,
        layers=shape.layers,
        encoder_layers=shape.layers if family.is_encoder_decoder else 0,
        hidden=hidden,
        heads=shape.heads,
        kv_heads=_groups(form, shape.heads),
        head=shape.kv,
        ffn=shape.ffn,
        vocabulary=vocabulary,
        gated=form.gated,
        tied_embeddings=form.tied,
        positions=sequence if form.learned_positions else 0,
        biases=form.biases,
        causal=not is_bert,
        experts=_experts(form, shape.ffn) if form.experts else None,
        # token types, the norm of embeddings, the pooler
        other_parameters=hidden * (2 + 2 + hidden + 1) if is_bert else 0,
    )


def _groups(form: Form, heads: int) -> int:
    return form.groups if form.groups and heads % form.groups == 0 else heads


def _experts(form: Form, ffn: int) -> Experts:
    width = form.expert_ffn or ffn
    return Experts(
        count=form.experts,
        per_token=form.experts_per_token,
        ffn=width,
        shared=round(form.shared_ffn / width),
        first_dense=form.first_dense,
        every=form.every,
    )


def runs_flash(model: Architecture) -> bool:
    """True if NVIDIA's trainings of such a model attend by flash kernels.

    NeMo 1.0 builds GPT and its like on Transformer Engine, which does; its T5 and BERT mask and
    bias the scores (``masked_softmax_fusion`` in its configurations), so that these are stored.
    """
    return model.causal and not model.encoder_layers


def nemo_parameters_b(rules: Rules, shape: Shape, vocabulary: int, sequence: int) -> float:
    """Billions of parameters."""
    if rules is Rules.GPT:
        return _gpt(shape, vocabulary, sequence)
    if rules is Rules.BERT:
        return _bert(shape, vocabulary, sequence)
    return _t5(shape, vocabulary, sequence)


def _gpt(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, hidden = shape.layers, shape.hidden
    beside = 13 / (12 * hidden) + (vocabulary + sequence) / (12 * layers * hidden)
    return 12 * layers * hidden**2 * (1 + beside) / 1e9


def _t5(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, ffn, projected = shape.layers, shape.ffn, shape.heads * shape.kv
    for_hidden = 2 + 6 * layers * ffn + layers * (21 + 12 * projected) + sequence + vocabulary
    return (3 * layers * ffn + 3 * layers * projected + shape.hidden * for_hidden) / 1e9


def _bert(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, hidden, ffn = shape.layers, shape.hidden, shape.ffn
    block = ffn + hidden * (4 * hidden + 3 * shape.heads + 2 * ffn + 6)
    return (layers * block + hidden * (vocabulary + sequence + hidden + 5)) / 1e9
