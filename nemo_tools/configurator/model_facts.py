"""The model that a recipe trains: family, size, shape and form.

NeMo 2.0's sections (trainer, data, model.config) or a file of NeMo 1.0 (run, trainer, model).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.autotuner.sizing import (
    Family,
    Form,
    ModelQuestion,
    Rules,
    Shape,
    architecture,
    choose_model,
    family_named,
    form_of,
    form_of_model,
    nemo_parameters_b,
    parse_model_name,
    shape_of_model,
)
from autoconf_launch.core import Architecture, ConfigError, KeyPath, RawConfig, nearest_known
from autoconf_launch.tuning_spaces import model_names, named_model, tables

from .recipe import Recipe, own_form

_NEMO1_SHAPES: tuple[KeyPath, ...] = (("model", "num_layers"), ("model", "encoder", "num_layers"))
_NEMO1_SIGNS: tuple[KeyPath, ...] = (
    *(("run",), ("exp_manager",), ("model", "optim"), ("model", "data")),
    ("model", "encoder_seq_length"),
)
GENERATION = 2
"""Generation of NVIDIA's rules: the interface is NeMo 2.0's."""
_SMALL_B = 0.01
_NEMO_VOCABULARY = 32000
_CONFIGS = ("config", "encoder", "")
_FIELDS = {
    "layers": ("num_layers", "num_hidden_layers"),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "ffn": ("ffn_hidden_size", "intermediate_size"),
    "kv": ("kv_channels", "head_dim"),
}
_NAMES = ("config.__fn_or_cls__.__name__", "__fn_or_cls__.__name__", "class", "model_type", "name")


def is_nemo1(document: RawConfig) -> bool:
    """True if a document has the layout of NeMo 1.0, not only a model without a section."""
    return _has_any(document, _NEMO1_SHAPES) and _has_any(document, _NEMO1_SIGNS)


def _has_any(document: RawConfig, paths: tuple[KeyPath, ...]) -> bool:
    return any(path in document for path in paths)


def overlaid(base: RawConfig, given: RawConfig) -> RawConfig:
    """The base with every value that the other has.

    A section stays if the other has none of its values. None in the other means that a number of
    the model, the optimizer or the schedule follows from others: then the base's stays.
    """
    for path, value in given.leaves():
        is_worked_out = path[:1] == ("model",) or (path[:1] == ("optim",) and path in base)
        stays = is_worked_out or isinstance(base.get(path), dict)
        if path and not (value in (None, {}) and stays):
            base = base.with_value(path, value)
    return base


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model of a recipe.

    Attributes:
        asked: its family, size, vocabulary and length of samples.
        shape: its learning rate is the table's, 0 if the recipe describes its own model.
        form: the recipe's own form, else the form of its name or family.
    """

    asked: ModelQuestion
    shape: Shape
    form: Form
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefaults:
    """Defaults for a recipe's missing values.

    Attributes:
        vocabulary: None for the vocabulary of the named model.
        calculated: size of a family in place of the recipe's; None keeps the recipe's.
    """

    vocabulary: int | None
    sequence: int
    gpu_memory_gb: float
    calculated: Callable[[Family], float] | None = None


def model_facts(recipe: Recipe, usual: ModelDefaults) -> ModelFacts:
    """Read the recipe's model: a name, a mapping, or an object.

    Raises:
        ConfigError: neither names nor numbers say which model it is.
    """
    model = recipe.get("model")
    own = Recipe({} if model is None or isinstance(model, str) else model, recipe.where)
    name = _name(own, recipe, model)
    if isinstance(model, str) and parse_model_name(name).family is None:
        nearest = nearest_known(model.lower(), model_names())
        helps = f"{nearest} Or write" if nearest.endswith("?") else "write"
        raise ConfigError(
            f"model {model!r} names no known family; {helps} family and size, such as llama3-8b "
            "or gpt3_5b, or give a mapping with num_layers, hidden_size, num_attention_heads."
        )
    family = _family(name, own, recipe)
    shape = None if usual.calculated else _shape(own, name)
    form = _form(recipe, family, name)
    if shape is not None:
        _check_groups(recipe, form, shape)
    published = _published_model(name)
    given_b = usual.calculated(family) if usual.calculated else _given_size(own, recipe)
    asked = ModelQuestion(
        family=family,
        size_b=given_b or 0.0,
        vocabulary=_number(own, ("vocab_size",))
        or recipe.whole("autoconf.vocab_size", "vocab_size")
        or usual.vocabulary
        or (published.vocabulary if published else _NEMO_VOCABULARY),
        sequence=usual.sequence,
        gpu_memory_gb=usual.gpu_memory_gb,
    )
    if shape is None:
        return _model_of_size(asked, form, name)
    return _model_of_shape(asked, shape, form, name)


def _name(own: Recipe, recipe: Recipe, model: object) -> str:
    """The words that may tell family and size, the surest first."""
    if isinstance(model, str):
        return model
    words = [own.get(path) for path in _NAMES]
    if model is not None and not isinstance(model, Mapping):
        words += [type(own.get("config")).__name__, type(model).__name__]
    words += [recipe.get("name"), recipe.get("run.name"), recipe.get("log.name")]
    texts = [str(word) for word in words if word is not None]
    return next((text for text in texts if parse_model_name(text).size_b), next(iter(texts), ""))


def _family(name: str, own: Recipe, recipe: Recipe) -> Family:
    given = own.get("family") or recipe.get("family", "autoconf.family")
    family = (
        given or parse_model_name(name).family or parse_model_name(str(own.get("class"))).family
    )
    if family is None:
        raise ConfigError(
            f"{recipe.where} does not say which family its model is of; give family: llama "
            "(gpt3, t5, bert, …), or a model name such as llama3-8b."
        )
    return family_named(str(family))


def _shape(own: Recipe, name: str) -> Shape | None:
    number = {field: _number(own, names) for field, names in _FIELDS.items()}
    layers, hidden, heads = number["layers"], number["hidden"], number["heads"]
    if layers and hidden and heads:
        return Shape(
            layers=layers,
            hidden=hidden,
            heads=heads,
            ffn=number["ffn"] or 4 * hidden,
            kv=number["kv"] or hidden // heads,
            learning_rate=0.0,
        )
    known = _published_model(name)
    return None if known is None else shape_of_model(known)


def _published_model(name: str) -> Architecture | None:
    known = {_plain(one): one for one in model_names()}
    found = known.get(_plain(name))
    return None if found is None else named_model(found)


def _form(recipe: Recipe, family: Family, name: str) -> Form:
    """The recipe's form, completed by the named model's or the family's.

    Without a number of groups, a file of NeMo 1.0 has keys and values for each head.
    """
    document, known = recipe.document, _published_model(name)
    usual = form_of(family) if known is None else form_of_model(known)
    if is_nemo1(document):
        usual = replace(usual, groups=0)
    model = document.get(("model",))
    return own_form(model, usual, recipe.where) if isinstance(model, dict) else usual


def _check_groups(recipe: Recipe, form: Form, shape: Shape) -> None:
    model = recipe.document.get(("model",))
    given = own_form(model, Form(), recipe.where).groups if isinstance(model, dict) else 0
    if given and given == form.groups and shape.heads % given:
        raise ConfigError(
            f"{recipe.where}: num_query_groups is {given}, but must divide num_attention_heads = "
            f"{shape.heads}."
        )


def _number(own: Recipe, names: tuple[str, ...]) -> int | None:
    for config in _CONFIGS:
        for name in names:
            value: Any = own.get(f"{config}.{name}" if config else name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _given_size(own: Recipe, recipe: Recipe) -> float | None:
    value = own.get("model_size_in_b")
    value = recipe.get("model_size_in_b", "autoconf.model_size_in_b") if value is None else value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigError(
            f"{recipe.where}: model_size_in_b is {value!r}, but must be a number above 0, in "
            "billions."
        )
    return float(value)


def _model_of_shape(asked: ModelQuestion, shape: Shape, form: Form, name: str) -> ModelFacts:
    """A model of known shape; a missing size comes from its name, or is counted.

    The name of a mixture has the size of one expert's model.
    """
    words, note = parse_model_name(name), asked.family.unknown_note
    named_b = None if words.experts else words.size_b
    size_b = asked.size_b or named_b or _size_b(asked, shape, form)
    notes = (note,) if note else ()
    return ModelFacts(asked=replace(asked, size_b=size_b), shape=shape, form=form, notes=notes)


def _model_of_size(asked: ModelQuestion, form: Form, name: str) -> ModelFacts:
    words = parse_model_name(name)
    size_b = asked.size_b or (words.size_b and words.size_b * max(1, words.experts))
    if not size_b:
        raise ConfigError(
            "Nothing says how large the model is; give it num_layers, hidden_size and "
            "num_attention_heads, or model_size_in_b, or set calculate_model_size=True."
        )
    chosen = choose_model(tables(GENERATION), replace(asked, size_b=size_b))
    notes = tuple(note for note in chosen.notes if note != chosen.batch.note)
    return ModelFacts(asked=chosen.asked, shape=chosen.shape, form=form, notes=notes)


def _size_b(asked: ModelQuestion, shape: Shape, form: Form) -> float:
    """Three decimals as NVIDIA's tool, and three digits of what would be nothing then.

    BERT's follows NVIDIA's formula, by which NeMo 2.0 names it; others are counted exactly.
    """
    said = asked.vocabulary, asked.sequence
    if asked.family.rules is Rules.BERT:
        size_b = nemo_parameters_b(Rules.BERT, shape, *said)
    else:
        size_b = parameters(architecture(asked.family, shape, *said, form)) / 1e9
    return round(size_b, 3) if size_b >= _SMALL_B else float(f"{size_b:.3g}")


def _plain(name: str) -> str:
    """A name without its spelling differences: ``llama3-8b`` and ``Llama3Config8B`` are equal."""
    lower = name.lower().replace("config", "")
    return "".join(letter for letter in lower if letter not in "-_.")
