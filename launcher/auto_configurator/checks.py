"""Checks of what ``AutoConfigurator`` is given; each error names its argument. Not: defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.core import ConfigError, nearest_known

from ..model_search.reading import is_whole, whole

AUTO = "auto"
Sizes: TypeAlias = "Sequence[int] | str | None"
_DATA_SUFFIXES = ("", ".bin", ".idx")
"""Megatron's data sets are named by the part of their files' names before the suffix."""


def sizes(name: str, value: object) -> tuple[int, ...] | None:
    """A list of sizes, each once; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or value == AUTO:
        return None
    listed = tuple(value) if isinstance(value, (list, tuple, range)) else ()
    if listed and all(is_whole(one, 1) for one in listed):
        return tuple(dict.fromkeys(listed))
    raise ConfigError(
        f'{name} is {value!r}, but must be "auto" or a list of whole numbers of at least 1, such '
        "as [1, 2, 4]."
    )


def size(name: str, value: object) -> int | None:
    """One size; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    return None if value is None or value == AUTO else whole(name, value)


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """One of some words.

    Raises:
        ConfigError: it is another.
    """
    words = tuple(known)
    if isinstance(value, str) and value in words:
        return value
    raise ConfigError(f"{name} is {value!r}; {nearest_known(str(value), words)}")


def plain_paths(value: object) -> Any:
    """Paths of data as documents hold them: a text, a list or a mapping; None without any.

    Raises:
        ConfigError: the value is none of these.
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_paths(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain_paths(inner) for inner in value]
    raise ConfigError(f"data_paths is {value!r}, but must be a path, a list or a mapping.")


def plain_tokenizer(value: object) -> str | None:
    """A path as a text, or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or isinstance(value, (str, Path)):
        return None if value is None else str(value)
    raise ConfigError(f"tokenizer_path is {value!r}, but must be a file or a folder.")


def require_paths(data: Any, tokenizer: str | None) -> None:
    """See that data and tokenizer are there; weights between paths are left out.

    Raises:
        ConfigError: one does not exist.
    """
    for path in _paths(data):
        if not any(Path(f"{path}{suffix}").exists() for suffix in _DATA_SUFFIXES):
            raise ConfigError(
                f"data_paths names {path}, which does not exist (nor {path}.bin); give data that "
                "is there."
            )
    if tokenizer is not None and not Path(tokenizer).exists():
        raise ConfigError(f"tokenizer_path is {tokenizer}, but there is no such file or folder.")


def _paths(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from () if _is_weight(data) else (data,)
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _paths(inner)


def _is_weight(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
