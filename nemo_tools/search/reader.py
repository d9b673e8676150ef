"""Values of a composed document, each checked; errors name the full key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name

_AUTO = (None, "auto", "null", "None")
"""Values that leave a choice to us, in all generations of NVIDIA's tools."""


MOST_OF_A_SEARCH = 2**40
"""No number of a search is above this."""


def is_whole(value: object, least: int) -> bool:
    """True if a value is an integer of at least ``least``; booleans are not integers."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def whole_number(name: str, value: object, least: int = 1) -> int:
    """A whole number.

    Raises:
        ConfigError: it is none, or too small.
    """
    if isinstance(value, int) and is_whole(value, least):
        if value > MOST_OF_A_SEARCH:
            raise ConfigError(f"{name} is {value!r}, but must be at most {MOST_OF_A_SEARCH}.")
        return value
    raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least {least}.")


def number(name: str, value: object) -> float:
    """A number above 0.

    Raises:
        ConfigError: it is none.
    """
    is_flag = isinstance(value, bool)
    if isinstance(value, (int, float)) and not is_flag and 0 < value <= MOST_OF_A_SEARCH:
        return float(value)
    raise ConfigError(
        f"{name} is {value!r}, but must be a number above 0, at most {MOST_OF_A_SEARCH}."
    )


def absolute_path(path: str) -> Path:
    """A path without ``..``: such parts come from defaults that are beside the tool."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


class Reader:
    """A section of a document; errors name the full key."""

    def __init__(self, document: RawConfig, section: KeyPath) -> None:
        self._document, self._section = document, section

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number.

        Raises:
            ConfigError: it is none, too small, or not given where it must be.
        """
        return int(self._require(key, self.optional_whole(key, least=least), default))

    def optional_whole(self, key: str, *, least: int = 1) -> int | None:
        """A whole number; None where it is left to us.

        Raises:
            ConfigError: it is none, or too small.
        """
        value = self._value(key)
        return None if value is None else whole_number(self._name(key), value, least)

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0.

        Raises:
            ConfigError: it is none, or not given where it must be.
        """
        return float(self._require(key, self.optional_number(key), default))

    def optional_number(self, key: str) -> float | None:
        """A number above 0; None where it is left to us.

        Raises:
            ConfigError: it is none.
        """
        value = self._value(key)
        return None if value is None else number(self._name(key), value)

    def sizes(self, key: str, *, least: int = 1) -> tuple[int, ...] | None:
        """A list of whole numbers, each once; a single one is a list of it; None where it is auto.

        Raises:
            ConfigError: it is none, or empty.
        """
        value = self._value(key)
        must_be = f"auto, or a list of numbers of at least {least}"
        return None if value is None else self._numbers(key, value, least, must_be)

    def lengths(self, key: str) -> tuple[int, ...] | None:
        """The same where nothing can choose a value; None where it is not given.

        Raises:
            ConfigError: it is none, or empty.
        """
        value = self._document.get((*self._section, key))
        must_be = "a number of at least 1, or a list of them"
        return None if value is None else self._numbers(key, value, 1, must_be)

    def _numbers(self, key: str, value: Any, least: int, must_be: str) -> tuple[int, ...]:
        values = value if isinstance(value, list) else [value]
        good = [one for one in values if is_whole(one, least) and one <= MOST_OF_A_SEARCH]
        if not values or len(good) < len(values):
            raise self._wrong(key, value, must_be)
        return tuple(dict.fromkeys(good))

    def flag(self, key: str, default: bool) -> bool:
        """True or False.

        Raises:
            ConfigError: it is neither.
        """
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "True or False")
        return value

    def text(self, key: str) -> str | None:
        """Words; None where there are none."""
        value = self._value(key)
        return None if value is None else str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of words, without empty ones; a single one is a list of it."""
        value = self._document.get((*self._section, key))
        values = value if isinstance(value, list) else [value]
        return tuple(str(one) for one in values if one not in _AUTO)

    def one_of(self, key: str, valid: tuple[str, ...], default: str) -> str:
        """The value of a key, checked to be one of the valid words.

        Raises:
            ConfigError: it is another one.
        """
        value = self._value(key)
        if value is None:
            return default
        if value not in valid:
            raise self._wrong(key, value, f"one of {', '.join(valid)}")
        return str(value)

    def _value(self, key: str) -> Any:
        value = self._document.get((*self._section, key))
        return None if isinstance(value, str) and value in _AUTO else value

    def _require(self, key: str, given: Any, default: Any) -> Any:
        if given is None and default is None:
            raise ConfigError(f"{self._name(key)} is not given, but search needs it.")
        return default if given is None else given

    def _wrong(self, key: str, value: Any, must_be: str) -> ConfigError:
        return ConfigError(f"{self._name(key)} is {value!r}, but must be {must_be}.")

    def _name(self, key: str) -> str:
        return dotted_name((*self._section, key))
