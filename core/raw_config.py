"""The user's document as it was read, immutable, with edits by full path and typed values."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .errors import ConfigError, still_open

KeyPath: TypeAlias = tuple[str, ...]
_MISSING: Any = object()
_MOST = 2**31


def dotted_name(path: KeyPath) -> str:
    """``zero_optimization.stage`` for messages."""
    return ".".join(path)


@dataclass(frozen=True, slots=True)
class Edit:
    """A difference between two documents; None means "not there"."""

    path: KeyPath
    before: Any
    after: Any


class RawConfig:
    """A nested document of JSON values. Values handed out are copies; edits give a new one."""

    __slots__ = ("_document",)

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document: dict[str, Any] = copy.deepcopy(dict(document))

    def get(self, path: KeyPath, default: Any = None) -> Any:
        """The value at ``path``, or ``default`` if any part of the path is missing."""
        value: Any = self._document
        for key in path:
            value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
            if value is _MISSING:
                return default
        return copy.deepcopy(value)

    def __contains__(self, path: KeyPath) -> bool:
        return self.get(path, _MISSING) is not _MISSING

    def with_value(self, path: KeyPath, value: Any) -> RawConfig:
        """A document that differs in one value; sections on the way are made."""
        return self.with_values([(path, value)])

    def with_values(self, edits: Iterable[tuple[KeyPath, Any]]) -> RawConfig:
        """A document that differs in some values, set one after the other."""
        edited = RawConfig(self._document)
        for path, value in edits:
            section = edited._document
            for key in path[:-1]:
                if not isinstance(section.get(key), dict):
                    section[key] = {}
                section = section[key]
            section[path[-1]] = copy.deepcopy(value)
        return edited

    def without(self, path: KeyPath) -> RawConfig:
        """A document that lacks ``path`` and the sections that this empties."""
        edited = RawConfig(self._document)
        sections: list[Any] = [edited._document]
        for key in path[:-1]:
            section = sections[-1].get(key)
            if not isinstance(section, dict):
                return edited
            sections.append(section)
        for section, key in zip(reversed(sections), reversed(path), strict=True):
            if key not in section:
                break
            del section[key]
            if section:
                break
        return edited

    def leaves(self) -> Iterator[tuple[KeyPath, Any]]:
        """Every value that is not a section, with its path, in the document's order."""
        yield from _leaves((), self._document)

    def diff(self, other: RawConfig) -> tuple[Edit, ...]:
        """Changes that turn this document into the other one."""
        mine, theirs = dict(self.leaves()), dict(other.leaves())
        paths = filter(None, (*mine, *(path for path in theirs if path not in mine)))
        return tuple(
            Edit(path, mine.get(path), theirs.get(path))
            for path in paths
            if mine.get(path, _MISSING) != theirs.get(path, _MISSING)
        )

    def to_dict(self) -> dict[str, Any]:
        """A deep copy as plain dictionaries."""
        return copy.deepcopy(self._document)

    def to_json(self) -> str:
        """Indented JSON, in the document's order."""
        return json.dumps(self._document, indent=2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawConfig) and self._document == other._document

    def __hash__(self) -> int:
        return hash(json.dumps(self._document, sort_keys=True))

    def __repr__(self) -> str:
        return f"RawConfig({self._document!r})"


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, value


def integer_value(raw: RawConfig, path: KeyPath, default: Any, *, least: int = 1) -> Any:
    """A whole number of at least ``least``, or ``default`` if there is none.

    Raises:
        ConfigError: it is open, no whole number, or out of range.
    """
    value = raw.get(path)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(wrong_value(path, value, f"a whole number of at least {least}"))
    if value > _MOST:
        raise ConfigError(wrong_value(path, value, f"a whole number of at most {_MOST}"))
    return value


def number_value(raw: RawConfig, path: KeyPath, default: float) -> float:
    """A number of at least 0, or ``default``; raises a ConfigError as :func:`integer_value`."""
    value = raw.get(path)
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise ConfigError(wrong_value(path, value, "a number of at least 0"))
    return float(value)


def flag_value(raw: RawConfig, path: KeyPath) -> bool:
    """True or false, which is also the value of a missing key; raises a ConfigError."""
    value = raw.get(path, False)
    if not isinstance(value, bool):
        raise ConfigError(wrong_value(path, value, "true or false"))
    return value


def wrong_value(path: KeyPath, value: object, must: str) -> str:
    """The message on a value that is still open, or is not valid."""
    if isinstance(value, list) or value == "auto":
        return still_open(dotted_name(path), value)
    return f"{dotted_name(path)} is {value!r}, but must be {must}."
