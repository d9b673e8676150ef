"""Reads values from a recipe: a YAML file, a mapping, or any object with attributes.

NeMo is not needed, and nothing of it is imported. Not: their meaning (model_facts), nor how
an object becomes data (plain_data).

Namespaces, dataclasses, instances and fiddle's configurations are sections of their attributes, as
mappings are of their keys. No method is called, nothing is built or imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from autoconf_launch.autotuner.sizing import RECIPE_PATHS, Form
from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name
from autoconf_launch.core import KeyPath as Keys
from autoconf_launch.launcher.config_file import read_config

Names: TypeAlias = Mapping[KeyPath, Sequence[str]]
"""Attributes by the section that they are read in, also if only a class has them."""
_NOTHING: Any = object()
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_CALLED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(functools.partial, type),
)
_CLASS = "class"
_PLAIN_DATA_MODEL = ("model",)
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "groups": ("num_query_groups", "num_key_value_heads"),
    "experts": ("num_moe_experts", "num_local_experts"),
    "experts_per_token": ("moe_router_topk", "num_experts_per_tok"),
    "expert_ffn": ("moe_ffn_hidden_size", "moe_intermediate_size"),
    "shared_ffn": ("moe_shared_expert_intermediate_size",),
}
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "gated": ("gated_linear_unit",),
    "biases": ("add_bias_linear", "bias"),
    "tied": ("share_embeddings_and_output_weights", "tie_word_embeddings"),
}
"""By their names in NeMo 2.0, NeMo 1.0 and transformers."""
FURTHER = ("moe_layer_freq", "position_embedding_type", "activation")
_SECTIONS = ("config", "encoder", "")
_MISSING: Any = object()
RECIPE_SECTIONS = frozenset({"trainer", "data", "optim", "log", "resume", "peft", "name"})
"""Sections of a recipe's document, besides its model."""
_OF_FILES = ("run", "exp_manager", "autoconf", "family")
"""Sections of a file of NeMo 1.0, or of ours."""
_FURTHER: tuple[Keys, ...] = (
    *(("optim", "config", "clip_grad"), ("log", "ckpt"), ("model", "config", "seq_length")),
)
_FIELDS = (*(name for names in (*NUMBERS.values(), *_FLAGS.values()) for name in names), *FURTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A value as data; ``left_out`` are the paths of values that cannot be."""

    value: Any
    left_out: tuple[str, ...]


def to_data(value: object, where: KeyPath, names: Names) -> Written:
    """An object or value as data, None if nothing of it is data.

    An object includes its class if its section has no ``names``, and fiddle's always.

    Args:
        value: the object to write.
        where: its section, for the paths of skipped values.
        names: attributes to read in known sections.
    """
    walk = _Walk(names)
    found = walk.data(value, where)
    return Written(value=None if found is _NOTHING else found, left_out=tuple(walk.left_out))


class _Walk:
    """Goes through a value once; an object inside itself is skipped."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._inside: set[int] = set()
        self.left_out: list[str] = []

    def data(self, value: object, where: KeyPath) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        for kind in (int, float, str):
            if isinstance(value, kind):
                return kind(value)
        if isinstance(value, PurePath):
            return str(value)
        found = _NOTHING
        if id(value) not in self._inside:
            self._inside.add(id(value))
            found = self._section(value, where)
            self._inside.discard(id(value))
        if found is _NOTHING:
            self.left_out.append(dotted_name(where))
        return found

    def _section(self, value: object, where: KeyPath) -> Any:
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            parts = (self.data(one, (*where, str(at))) for at, one in enumerate(value))
            return [part for part in parts if part is not _NOTHING]
        if isinstance(value, Mapping):
            return self._pairs(((str(name), inner) for name, inner in value.items()), where)
        is_known = where in self._names
        if not _has_attributes(value) or (isinstance(value, _CALLED) and not is_known):
            return _NOTHING
        attributes = list(_attributes(value, self._names.get(where, ()), where))
        found = self._pairs(iter(attributes), where)
        if isinstance(value, _NAMESPACES) or (is_known and not is_fiddle(value)):
            return found
        if not attributes and not is_fiddle(value):
            return _NOTHING
        return {_CLASS: _class_name(value), **found}

    def _pairs(self, pairs: Iterator[tuple[str, object]], where: KeyPath) -> dict[str, Any]:
        found = {name: self.data(value, (*where, name)) for name, value in pairs}
        return {name: value for name, value in found.items() if value is not _NOTHING}


def _has_attributes(value: object) -> bool:
    """True if a value can have attributes, unlike dates and tensor types."""
    return hasattr(value, "__dict__") or dataclasses.is_dataclass(value)


def _attributes(
    value: object, names: Sequence[str], where: KeyPath
) -> Iterator[tuple[str, object]]:
    """Public attributes of an instance and its class, then known ones such as fiddle's defaults.

    None has a meaning only for a model: the number follows from others.
    """
    own = _own(value)
    yield from own.items()
    for name in names:
        found = _NOTHING if name in own else getattr(value, name, _NOTHING)
        if found is not _NOTHING and (found is not None or where[:1] == _PLAIN_DATA_MODEL):
            yield name, found


def _own(value: object) -> dict[str, object]:
    if is_fiddle(value):
        return _public(vars(value)["__arguments__"])
    found: dict[str, object] = {}
    kind = value if isinstance(value, type) else type(value)
    for base in reversed(kind.__mro__[:-1]):
        found |= {name: one for name, one in _public(vars(base)).items() if _is_data(one)}
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        found |= {name: getattr(value, name) for name in names if hasattr(value, name)}
    is_instance = hasattr(value, "__dict__") and not isinstance(value, type)
    return found | (_public(vars(value)) if is_instance else {})


def _public(names: Mapping[Any, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in names.items()
        if isinstance(name, str) and not name.startswith("_")
    }


def _is_data(value: object) -> bool:
    """True if a class attribute is plain data: not a method, property or class."""
    return not hasattr(type(value), "__get__") and not isinstance(value, _CALLED)


def is_fiddle(value: object) -> bool:
    """True if a value is a fiddle configuration, as NeMo-Run's are."""
    has_names = hasattr(value, "__dict__") and not isinstance(value, type)
    return has_names and isinstance(vars(value).get("__arguments__"), Mapping)


def _class_name(value: object) -> str:
    kind = vars(value).get("__fn_or_cls__", type(value)) if is_fiddle(value) else type(value)
    return str(getattr(kind, "__name__", kind))


def own_form(model: Mapping[str, Any], usual: Form, where: str) -> Form:
    """The form that a model's section describes; the rest has the defaults.

    None says that a number follows from others: as many groups as heads, no experts.
    """
    given: dict[str, Any] = {}
    for field, names in NUMBERS.items():
        value = _number(model, names, where)
        if value is not _MISSING:
            given[field] = value
    for field, names in _FLAGS.items():
        value = value_in(model, names)
        if isinstance(value, bool):
            given[field] = value
    activation, positions = (value_in(model, (name,)) for name in ("activation", FURTHER[1]))
    if isinstance(activation, str):
        given.setdefault("gated", "glu" in activation)
    if isinstance(positions, str):
        given["learned_positions"] = positions == "learned_absolute"
    given |= _sparsity(value_in(model, ("moe_layer_freq",)))
    if given.get("experts_per_token") == 0:
        del given["experts_per_token"]
    return replace(usual, **given)


def value_in(model: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Value below ``config``, ``encoder`` or the section itself, or a marker if missing."""
    sections = (model.get(section) if section else model for section in _SECTIONS)
    for words in sections:
        if isinstance(words, Mapping):
            found = next((words[name] for name in names if name in words), _MISSING)
            if found is not _MISSING:
                return found
    return _MISSING


def _number(model: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    value = value_in(model, names)
    if value is _MISSING or isinstance(value, str):
        return _MISSING
    if isinstance(value, bool) or not isinstance(value, (int, type(None))) or (value or 0) < 0:
        raise ConfigError(
            f"{where}: {names[0]} is {value!r}, but must be a whole number, or null."
        )
    return value or 0


def _sparsity(value: Any) -> dict[str, int]:
    """Layers with experts: every n-th, or those that a list has 1 for after its leading zeros."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return {"every": value}
    if isinstance(value, list) and 1 in value:
        return {"first_dense": value.index(1)}
    return {}


_MODEL, _CONFIG = "model", "config"


class Recipe:
    """Values by path, whatever the recipe is made of; None if a part is missing.

    ``model`` replaces the recipe's own model.
    """

    __slots__ = ("_model", "_root", "where")

    def __init__(self, root: object, where: str, model: object = None) -> None:
        self._root = root
        self._model = model
        self.where = where

    def get(self, *dotted: str) -> Any:
        """The first of these paths (``trainer.num_nodes``) that has a value."""
        values = (self._at(path) for path in dotted)
        return next((value for value in values if value is not None), None)

    def whole(self, *dotted: str, least: int = 1) -> int | None:
        """The first of these paths' values as a whole number; None for "auto"."""
        value = self.get(*dotted)
        if value is None or value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"{self.where}: {dotted[0]} is {value!r}, but must be a whole number of at least "
                f"{least}."
            )
        return value

    @property
    def document(self) -> RawConfig:
        return RawConfig(_to_document(self._root, self._model).value)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Paths of values that are not data, such as functions."""
        return _to_document(self._root, self._model).left_out

    def _at(self, dotted: str) -> Any:
        first, _, rest = dotted.partition(".")
        if first != _MODEL or self._model is None:
            return _value_at(self._root, dotted)
        return _value_at(self._model, rest) if rest else self._model


def read_recipe(recipe: object, model: object = None) -> Recipe:
    """A recipe as it was given, with ``model`` replacing its model; None has no values.

    Raises:
        ConfigError: a file cannot be read, or the value cannot hold a recipe.
    """
    if isinstance(model, Mapping):
        model = _plain(model)
    elif isinstance(model, (str, Path)) and Path(model).is_file():
        model = read_config(Path(model)).to_dict()
    if isinstance(recipe, (str, Path)):
        return Recipe(read_config(Path(recipe)).to_dict(), str(recipe), model)
    if isinstance(recipe, (bool, int, float, list, tuple, set)):
        raise ConfigError(
            f"recipe is {recipe!r}, but must be a YAML file, a mapping, or an object with "
            "attributes such as model and num_nodes."
        )
    return Recipe(_root(recipe), "recipe", model)


def _root(recipe: object) -> object:
    if recipe is None:
        return {}
    if isinstance(recipe, RawConfig):
        return recipe.to_dict()
    return _plain(recipe) if isinstance(recipe, Mapping) else recipe


def _value_at(value: object, dotted: str) -> Any:
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if value is None:
            return None
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _to_document(root: object, model: object) -> Written:
    """A recipe as one document; a model that is given takes the place of the recipe's."""
    parts: dict[str, Any] = dict(root) if isinstance(root, Mapping) else _sections(root)
    if model is not None:
        parts[_MODEL] = model
    if _MODEL in parts:
        parts[_MODEL] = _bare(parts[_MODEL])
    return to_data(parts, (), _NAMES)


def _sections(root: object) -> dict[str, Any]:
    names = (_MODEL, *sorted(RECIPE_SECTIONS), *_OF_FILES)
    return {name: getattr(root, name) for name in names if hasattr(root, name)}


def _bare(model: object) -> object:
    """Only a built model's configuration: its other attributes are weights and state."""
    is_built = hasattr(type(model), "forward") and hasattr(model, _CONFIG)
    return {_CONFIG: getattr(model, _CONFIG)} if is_built else model


def _names(paths: Iterable[Keys]) -> Names:
    found: dict[Keys, list[str]] = {}
    for path in paths:
        for depth in range(len(path)):
            names = found.setdefault(path[:depth], [])
            if path[depth] not in names:
                names.append(path[depth])
    return found


_NAMES = _names(
    (
        *RECIPE_PATHS,
        *_FURTHER,
        *((_MODEL, _CONFIG, name) for name in _FIELDS),
        *((_MODEL, name) for name in _FIELDS),
    )
)
