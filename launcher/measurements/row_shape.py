"""The model and the training of a table's row, by its columns and by the model's name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeVar

from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Architecture,
    ConfigError,
    Dispatcher,
    Experts,
    GradientSum,
    Loss,
    Offload,
    Optimizer,
    States,
    WeightFormat,
    Workload,
    nearest_known,
)
from autoconf_launch.tuning_spaces import known_model, model_names, named_model, why_refused

_Word = TypeVar("_Word", Dispatcher, States, GradientSum, Loss, WeightFormat, Offload)
MODEL_COLUMNS = ("layers", "hidden", "heads", "ffn_hidden", "seq", "vocab")
_FIELDS = {"ffn_hidden": "ffn", "vocab": "vocabulary"}
"""Fields of a shape whose column has another name."""
_EXPERTS = ("experts", "experts_per_token", "expert_ffn")
EXPERT_COLUMNS = (*_EXPERTS, "shared_experts")
KIND_COLUMNS = ("gated", "tied_embeddings")
"""Columns that say if the MLP is gated, and if input and output share an embedding."""
_LARGEST = 2**53
_BRACKETS = re.compile(r"\s*\(.*\)")
"""Text that a table adds to a model's name."""
_ALIKE = 0.8
"""Likeness of ``difflib`` from which on a model's name is a slip of another."""


class RowError(ConfigError):
    """A row that contradicts itself; the others of its file still count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialShape:
    """The model of a row; None is "not stated"."""

    name: str
    params_b: float | None
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    vocabulary: int | None
    seq: int | None
    gated: bool | None = None
    tied: bool | None = None
    experts: Experts | None = None
    known: Architecture | None = None
    """The model of our tables that fills the row's empty columns, cut to the row's layers."""

    def lacks(self, column: str) -> bool:
        return getattr(self, _FIELDS.get(column, column)) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape(PartialShape):
    """A model of which a row says all that a prediction needs."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    seq: int


def read_shape(cell: Mapping[str, str]) -> PartialShape:
    """The model of a row, a named one's shapes in the columns that are empty.

    Raises:
        RowError: columns contradict each other or the model that ``arch`` names.
    """
    heads = row_whole_or_none(cell, "heads")
    kv_heads = row_whole_or_none(cell, "kv_heads")
    if heads and kv_heads and (kv_heads > heads or heads % kv_heads):
        raise RowError(f"kv_heads={kv_heads} does not divide heads={heads}")
    stated = PartialShape(
        name=cell["model"],
        params_b=row_number(cell, "params_b") if cell.get("params_b") else None,
        layers=row_whole_or_none(cell, "layers"),
        hidden=row_whole_or_none(cell, "hidden"),
        heads=heads,
        kv_heads=kv_heads or heads,
        ffn=row_whole_or_none(cell, "ffn_hidden"),
        vocabulary=row_whole_or_none(cell, "vocab"),
        seq=row_whole_or_none(cell, "seq"),
        gated=row_flag(cell, "gated"),
        tied=row_flag(cell, "tied_embeddings"),
        experts=_experts(cell),
    )
    named = _named_model(cell)
    return stated if named is None else _fill(stated, named, strict=bool(cell.get("arch")))


def _named_model(cell: Mapping[str, str]) -> Architecture | None:
    """The model of a row that does not state all its shapes, or that gives ``arch``."""
    if text := cell.get("arch"):
        try:
            return named_model(text)
        except ConfigError as error:
            raise RowError(f"arch is {text!r}: {str(error).rstrip('.')}") from None
    if all(cell[name] for name in MODEL_COLUMNS):
        return None
    name = _BRACKETS.sub("", cell["model"])
    if reason := why_refused(name):
        raise RowError(f"{name} cannot be predicted: {reason}")
    return known_model(name)


def why_unknown(shape: PartialShape, column: str) -> str:
    """Reason why a row without its model's columns is not predicted; may name a close model."""
    name = _BRACKETS.sub("", shape.name).lower()
    close = [] if shape.known else get_close_matches(name, model_names(), 1, _ALIKE)
    unknown = f", and model {shape.name!r} is unknown; did you mean {close[0]!r}?" if close else ""
    return f"no {column}{unknown}"


def _fill(stated: PartialShape, named: Architecture, *, strict: bool) -> PartialShape:
    """``stated`` completed by ``named``; unchanged if they contradict each other.

    A stated vocabulary may be padded, and stated layers cut the model.
    """
    for name in ("hidden", "heads", "kv_heads", "ffn"):
        given, known = getattr(stated, name), getattr(named, name)
        if given not in (None, known):
            if not strict:
                return stated
            raise RowError(f"{name} is {given}, but {named.name} has {known}; correct one of them")
    layers = stated.layers or named.layers
    experts = stated.experts or named.experts
    if experts and experts.first_dense > layers:
        experts = replace(experts, first_dense=layers)
    vocabulary = stated.vocabulary or named.vocabulary
    return replace(
        stated,
        layers=layers,
        hidden=named.hidden,
        heads=named.heads,
        kv_heads=named.kv_heads,
        ffn=named.ffn,
        vocabulary=vocabulary,
        experts=experts,
        known=replace(named, layers=layers, vocabulary=vocabulary, experts=experts),
    )


def _experts(cell: Mapping[str, str]) -> Experts | None:
    given = {name: row_whole_or_none(cell, name) for name in _EXPERTS}
    if not any(given.values()):
        return None
    for name in _EXPERTS:
        if given[name] is None:
            others = " and ".join(other for other in _EXPERTS if given[other])
            raise RowError(f"{name} is empty, but is required with {others}")
    count, chosen, ffn = (given[name] or 0 for name in _EXPERTS)
    if chosen > count:
        raise RowError(f"experts_per_token={chosen} is more than experts={count}")
    shared = 0 if cell.get("shared_experts") == "0" else row_whole_or_none(cell, "shared_experts")
    return Experts(count=count, per_token=chosen, ffn=ffn, shared=shared or 0)


def row_whole_or_none(cell: Mapping[str, str], name: str) -> int | None:
    """A whole number; None if the cell is empty or the column missing."""
    return row_whole(cell, name) if cell.get(name) else None


def row_whole(cell: Mapping[str, str], name: str) -> int:
    """A cell's number; raises a RowError if it is not a whole number above 0."""
    number = row_number(cell, name)
    if number != int(number):
        raise RowError(f"{name} is {cell[name]!r}, but must be a whole number")
    return int(number)


def row_number(cell: Mapping[str, str], name: str) -> float:
    """A cell's number; raises a RowError if it is not a number above 0."""
    try:
        number = float(cell[name])
    except ValueError:
        number = math.nan
    if not 0 < number <= _LARGEST:
        raise RowError(f"{name} is {cell[name]!r}, but must be a number above 0 and not too large")
    return number


RECIPE_COLUMNS = (
    *("optimizer", "states", "gradients", "loss", "lora_rank", "weights"),
    "update_in_backward",
)


def row_training(cell: Mapping[str, str]) -> Workload:
    """A training by the columns on adapters, optimizer, states and loss, still without its model.

    Raises:
        RowError: a word is unknown, or weights are stored in a format but are not frozen.
    """
    optimizer = row_choice(cell, "optimizer", OPTIMIZER_STATES)
    training = Workload(
        states=row_enum(cell, "states", States),
        gradients=row_enum(cell, "gradients", GradientSum),
        loss=row_enum(cell, "loss", Loss),
        dispatcher=row_enum(cell, "dispatcher", Dispatcher),
        lora_rank=row_whole_or_none(cell, "lora_rank"),
        weight_format=row_enum(cell, "weights", WeightFormat),
        updates_in_backward=bool(row_flag(cell, "update_in_backward")),
    )
    if training.weight_format is not None and not training.trains_adapters:
        raise RowError(f"weights is {cell['weights']!r}, but all are trained; give lora_rank")
    if optimizer is None:
        return training
    return replace(training, optimizer=Optimizer.from_name(optimizer))


def row_flag(cell: Mapping[str, str], name: str) -> bool | None:
    """A cell that is 1 or true; None if it is empty or the column missing."""
    return cell[name] in ("1", "true", "True") if cell.get(name) else None


def row_choice(cell: Mapping[str, str], name: str, known: Iterable[str]) -> str | None:
    """A word of a cell; None if it is empty. Raises a RowError if it is not a known word."""
    text = cell.get(name, "").strip().lower()
    if not text:
        return None
    words = [*known]
    if text not in words:
        raise RowError(f"{name} is {cell[name]!r}; {nearest_known(text, words)}")
    return text


def row_enum(cell: Mapping[str, str], name: str, kind: type[_Word]) -> _Word | None:
    """A member by its value; None if the cell is empty. Raises a RowError if there is none."""
    word = row_choice(cell, name, [one.value for one in kind])
    return None if word is None else kind(word)
