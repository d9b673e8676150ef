"""What of an object can stand in a document. Not: what it means (recipe, model_facts).

Namespaces, dataclasses, instances and fiddle's configurations are sections of their attributes, as
mappings are of their keys. No method is called, nothing is built or imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeAlias

from autoconf_launch.core import KeyPath, dotted

Names: TypeAlias = Mapping[KeyPath, Sequence[str]]
"""Attributes by the section that they are read in, also where a class alone has them."""
_NOTHING: Any = object()
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_CALLED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(functools.partial, type),
)
_CLASS = "class"
_MODEL = ("model",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A value as data; ``left_out`` are the paths of what cannot be."""

    value: Any
    left_out: tuple[str, ...]


def written(value: object, where: KeyPath, names: Names) -> Written:
    """An object or value as data, None where nothing of it is.

    An object says its class where no ``names`` are known of its section, and fiddle's always.

    Args:
        value: what is to be written.
        where: its section, for the paths of what is left out.
        names: what to read of sections that are known.
    """
    walk = _Walk(names)
    found = walk.data(value, where)
    return Written(value=None if found is _NOTHING else found, left_out=tuple(walk.left_out))


class _Walk:
    """Goes through a value once; an object inside itself is left out."""

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
            self.left_out.append(dotted(where))
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
        if isinstance(value, _NAMESPACES) or (is_known and not _is_fiddle(value)):
            return found
        if not attributes and not _is_fiddle(value):
            return _NOTHING
        return {_CLASS: _class_name(value), **found}

    def _pairs(self, pairs: Iterator[tuple[str, object]], where: KeyPath) -> dict[str, Any]:
        found = {name: self.data(value, (*where, name)) for name, value in pairs}
        return {name: value for name, value in found.items() if value is not _NOTHING}


def _has_attributes(value: object) -> bool:
    """Whether a value may have some of its own, unlike dates and types of tensors."""
    return hasattr(value, "__dict__") or dataclasses.is_dataclass(value)


def _attributes(
    value: object, names: Sequence[str], where: KeyPath
) -> Iterator[tuple[str, object]]:
    """Public ones of the instance and its class, then known ones, such as defaults of fiddle's.

    None says something there of a model alone: that a number follows from others.
    """
    own = _own(value)
    yield from own.items()
    for name in names:
        found = _NOTHING if name in own else getattr(value, name, _NOTHING)
        if found is not _NOTHING and (found is not None or where[:1] == _MODEL):
            yield name, found


def _own(value: object) -> dict[str, object]:
    if _is_fiddle(value):
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
    """Whether a value of a class is one of its instances, too: no method, property or class."""
    return not hasattr(type(value), "__get__") and not isinstance(value, _CALLED)


def _is_fiddle(value: object) -> bool:
    has_names = hasattr(value, "__dict__") and not isinstance(value, type)
    return has_names and isinstance(vars(value).get("__arguments__"), Mapping)


def _class_name(value: object) -> str:
    kind = vars(value).get("__fn_or_cls__", type(value)) if _is_fiddle(value) else type(value)
    return str(getattr(kind, "__name__", kind))
