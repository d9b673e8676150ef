"""Read a user's configuration file: JSON, hjson or YAML."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hjson
import yaml

from autoconf_launch.core import ConfigError, RawConfig

MOST_BYTES = 16 << 20
MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's content; ``warnings`` tell what was read otherwise than it is written."""

    config: RawConfig
    warnings: tuple[str, ...] = ()


def read_config(path: Path) -> RawConfig:
    """Read by the file's suffix; see :func:`read_document`."""
    return read_document(path).config


def read_document(path: Path) -> Document:
    """Read by the file's suffix; JSON may have comments and trailing commas.

    A JSON file that lacks just its last closing brace, as printed examples do, is read with a
    warning.

    Raises:
        ConfigError: the file is missing, too large, malformed, or no object at its top.
    """
    text = _text(path)
    parse = _PARSERS.get(path.suffix.lower(), _parse_json)
    warnings: tuple[str, ...] = ()
    try:
        document = parse(text)
    except Exception as error:  # hjson has IndexErrors of its own, yaml KeyErrors, and more
        document = _close_last_brace(text) if parse is _parse_json else None
        if document is None:
            raise ConfigError(f"{path} cannot be read: {_defect(error)}") from error
        warnings = (f"{path} lacks its last closing brace; it is read as if it were there.",)
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        kind = type(document).__name__
        raise ConfigError(f"{path} holds a {kind}, but must hold an object ({{…}}) of settings.")
    return Document(config=RawConfig(document), warnings=warnings)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES >> 20} MiB; is it a config?")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as strict:
        if not text.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*", "#")):
            raise
        try:
            return _plain(hjson.loads(text, object_pairs_hook=_without_duplicates))
        except (hjson.HjsonDecodeError, IndexError, OverflowError):
            raise strict from None


_STRING_OR_LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])')


def _close_last_brace(text: str) -> dict[str, Any] | None:
    """The document if one closing brace at the end is all that it lacks; otherwise None.

    A file that was cut off elsewhere does not end with a brace, or lacks more of them.
    """
    bare = _STRING_OR_LAST_COMMA.sub("", text)
    if not bare.rstrip().endswith("}") or bare.count("{") != bare.count("}") + 1:
        return None
    without_commas = _STRING_OR_LAST_COMMA.sub(lambda m: m[0] if m[0] != "," else "", text)
    try:
        document = json.loads(f"{without_commas}}}", object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _parse_hjson(text: str) -> Any:
    return _plain(hjson.loads(text, object_pairs_hook=_without_duplicates))


def _parse_yaml(text: str) -> Any:
    return _plain(yaml.load(text, Loader=_Loader))


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads ``5e7`` as text; people mean the number, as in JSON."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    section = dict(pairs)
    if len(section) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key '{twice}' is given twice in one section; remove one.")
    return section


def _plain(value: Any) -> Any:
    """JSON values alone, and not so many that nested aliases could fill the memory."""
    budget = itertools.count(1)

    def walk(value: Any) -> Any:
        if next(budget) > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values once aliases are resolved.")
        if isinstance(value, dict):
            return {key: walk(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise ValueError(f"{value!r} is not a JSON value; quote it to make it text.")

    return walk(value)


def _defect(error: Exception) -> str:
    """The error in one line; a parser's own bug has its kind before it."""
    known = isinstance(error, ValueError | yaml.YAMLError | RecursionError)
    text = " ".join(str(error).split())
    return text if known else f"it is malformed ({type(error).__name__}: {text})."


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".json": _parse_json,
    ".hjson": _parse_hjson,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
}


def is_plain_json(path: Path) -> bool:
    """Whether a rank, which has the standard library alone, can read the file as it is."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return path.suffix.lower() == ".json"
