"""Frozen dataclasses to plain JSON values and back.

Covers what our records use: dataclasses, enums, tuples, optionals and scalars. The types are
the schema, so a value that does not fit raises and is never half read.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class DecodeError(ValueError):
    """A JSON value does not have the shape of the type it was read as."""


def encode(value: object) -> Any:
    """JSON value of a dataclass, enum, tuple or scalar; infinities and NaN become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def decode(kind: type[_T], value: object) -> _T:
    """Read ``value`` as ``kind``; unknown keys are ignored, missing ones take the default.

    Raises:
        DecodeError: a required field is missing or a value has another type.
    """
    return cast(_T, _decode(kind, value))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: object) -> object:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), value)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, value)
    if kind in (Any, object):
        return tuple(value) if isinstance(value, list) else value
    return _decode_scalar(kind, value)


def _decode_union(kinds: tuple[Any, ...], value: object) -> object:
    if value is None and type(None) in kinds:
        return None
    exact = [kind for kind in kinds if isinstance(kind, type) and type(value) is kind]
    for kind in (*exact, *(k for k in kinds if k is not type(None))):
        try:
            return _decode(kind, value)
        except DecodeError:
            continue
    raise DecodeError(f"{value!r} is not one of {', '.join(map(str, kinds))}")


def _decode_tuple(kinds: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise DecodeError(f"{value!r} is not a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item) for item in value)
    if len(kinds) != len(value):
        raise DecodeError(f"{value!r} does not have {len(kinds)} items")
    return tuple(_decode(kind, item) for kind, item in zip(kinds, value, strict=True))


def _decode_dataclass(kind: type, value: object) -> object:
    if not isinstance(value, dict):
        raise DecodeError(f"{value!r} is not an object ({kind.__name__})")
    hints = _hints(kind)
    known = {f.name for f in dataclasses.fields(kind)} & value.keys()
    try:
        return kind(**{name: _decode(hints[name], value[name]) for name in known})
    except TypeError as error:
        raise DecodeError(f"{kind.__name__}: {error}") from error


def _decode_scalar(kind: Any, value: object) -> object:
    if kind is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError) as error:
            raise DecodeError(f"{value!r} is not a number") from error
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise DecodeError(str(error)) from error
    if type(value) is kind:
        return value
    raise DecodeError(f"{value!r} is not of type {getattr(kind, '__name__', kind)}")
