"""Read a user's configuration file: JSON, hjson or YAML."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hjson
import yaml

from autoconf_launch.core import ConfigError, RawConfig

from .input_file import input_text

MOST_VALUES = 100_000
_MOST_DEPTH = 64
_MOST_WHOLE = 2**64
_NO_LIMIT = int(1e30)
"""transformers writes this for a length without a limit."""
_MOST_DIGITS = 400
"""No float is larger; Python itself refuses more than 4300."""
_STRING_OR_LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])')
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's content; ``warnings`` report text that was read otherwise than it is written."""

    config: RawConfig
    warnings: tuple[str, ...] = ()


def read_config(path: Path) -> RawConfig:
    """Read by the file's suffix; see :func:`read_document`."""
    return read_document(path).config


def read_document(path: Path) -> Document:
    """Read by the file's suffix; JSON may have comments and trailing commas.

    A JSON file that lacks only its last closing brace, as printed examples do, is read with a
    warning.

    Raises:
        ConfigError: the file is missing, too large, malformed, or not an object at its top.
    """
    text = config_text(path)
    parse = _PARSERS.get(path.suffix.lower(), _parse_json)
    warnings: tuple[str, ...] = ()
    try:
        document = parse(text)
    except Exception as error:  # hjson has IndexErrors of its own, yaml KeyErrors, and more
        document = _close_last_brace(text) if parse is _parse_json else None
        if document is None:
            raise ConfigError(f"{path} cannot be read: {_defect(error)}") from error
        warnings = (f"{path} lacks its last closing brace; it is read as if it were there.",)
    if not isinstance(document, dict):
        kind = "nothing" if document is None else f"a {type(document).__name__}"
        raise ConfigError(f"{path} holds {kind}, but must hold an object ({{…}}) of settings.")
    for key in document:
        if not isinstance(key, str):
            raise ConfigError(f"{path} has key {key!r}, which is not text; quote it.")
    return Document(config=RawConfig(document), warnings=warnings)


def config_text(path: Path) -> str:
    """Text of a file.

    Raises:
        ConfigError: it is not a regular file of UTF-8 text, or too large.
    """
    try:
        return input_text(path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _parse_json(text: str) -> Any:
    try:
        return _parse_strictly(text)
    except json.JSONDecodeError as strict:
        if not text.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*", "#")):
            raise
        try:
            return _parse_hjson(text)
        except (hjson.HjsonDecodeError, IndexError, OverflowError):
            raise strict from None


def _close_last_brace(text: str) -> dict[str, Any] | None:
    bare = _STRING_OR_LAST_COMMA.sub("", text)
    if not bare.rstrip().endswith("}") or bare.count("{") != bare.count("}") + 1:
        return None
    without_commas = _STRING_OR_LAST_COMMA.sub(lambda m: m[0] if m[0] != "," else "", text)
    try:
        document = _parse_strictly(f"{without_commas}}}")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _parse_strictly(text: str) -> Any:
    return _plain(json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_whole))


def _parse_hjson(text: str) -> Any:
    return _plain(hjson.loads(text, object_pairs_hook=_without_duplicates, parse_int=_whole))


def _whole(digits: str) -> int:
    return int(digits) if len(digits) < _MOST_DIGITS else 10**_MOST_DIGITS


def _parse_yaml(text: str) -> Any:
    return _plain(_load_yaml(text, _Loader))


def parse_yaml(text: str, name: str) -> Any:
    """A framework's YAML as its own reader takes it, but no key twice; ``name`` is for messages.

    Raises:
        ConfigError: it is malformed, too large or nested too deep.
    """
    try:
        return _load_yaml(text, _UniqueKeys)
    except Exception as error:  # as above
        raise ConfigError(f"{name} cannot be read: {_defect(error)}") from error


def compose_yaml(text: str) -> yaml.Node | None:
    """The nodes of a YAML or JSON text with their places; None if it is not such a text.

    No tag is resolved to an object.
    """
    try:
        _check_size(text, _UniqueKeys)
        node: yaml.Node | None = yaml.compose(text, Loader=_UniqueKeys)
    except Exception:  # as above
        return None
    return node


def top_keys(text: str) -> tuple[str, ...] | None:
    """Keys at the top of a YAML or JSON text; None if it is not such a text."""
    node = compose_yaml(text)
    if node is None:
        return None
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return tuple(str(key.value) for key, _ in pairs)


def _load_yaml(text: str, loader: type[_UniqueKeys]) -> Any:
    _check_size(text, loader)
    return yaml.load(text, Loader=loader)


def _check_size(text: str, loader: type[_UniqueKeys]) -> None:
    """Refuse a text that is large or deep; the library needs a frame for each level."""
    depth = count = 0
    name, is_key = "it", False
    for event in yaml.parse(text, Loader=loader):
        if depth == 1 and isinstance(event, yaml.NodeEvent):
            is_key = not is_key
            name = event.value if is_key and isinstance(event, yaml.ScalarEvent) else name
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        count += isinstance(event, yaml.NodeEvent)
        if depth > _MOST_DEPTH:
            raise ValueError(f"{name} is nested more than {_MOST_DEPTH} deep.")
        if count > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values.")


class _UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a key that is given twice in one section; YAML takes the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _refuse_duplicates([name for name in names if name != "<<"])
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: Any) -> Any:
        """Python refuses to read more than some thousand digits."""
        if len(node.value) >= _MOST_DIGITS:
            return 10**_MOST_DIGITS
        return super().construct_yaml_int(node)


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _UniqueKeys.construct_yaml_int)


class _Loader(_UniqueKeys):
    """YAML 1.1 reads ``5e7`` as text and ``1:30`` as 90; people mean a number, and a time."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        for key, value in node.value:
            for scalar in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                if scalar.tag in _NUMBERS and ":" in scalar.value:
                    raise ValueError(
                        f"{key.value} is {scalar.value}, which YAML 1.1 reads as a number to base "
                        "60; quote it, or write the number."
                    )
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_duplicates([name for name, _ in pairs])
    return dict(pairs)


def _refuse_duplicates(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"key '{name}' is given twice in one section; remove one.")
        seen.add(name)


def _plain(value: Any) -> Any:
    """JSON values only; a limit keeps nested aliases from filling the memory."""
    budget = itertools.count(1)

    def walk(value: Any, path: tuple[str, ...]) -> Any:
        if next(budget) > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values once aliases are resolved.")
        if len(path) > _MOST_DEPTH:
            raise ValueError(f"{path[0]} is nested more than {_MOST_DEPTH} deep.")
        if isinstance(value, dict):
            if wrong := next((key for key in value if "\0" in str(key)), None):
                raise ValueError(f"key {wrong!r} has a NUL character; remove it.")
            return {key: walk(inner, (*path, str(key))) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, "[]")) for item in value]
        if why := _why_no_value(value):
            name = ".".join(path).replace(".[]", "[]")
            raise ValueError(f"{name or 'it'} is {why}")
        return value

    return walk(value, ())


def _why_no_value(value: object) -> str | None:
    if isinstance(value, float) and math.isnan(value):
        return "NaN, which is not a number; give one."
    if isinstance(value, int) and abs(value) >= _MOST_WHOLE and value != _NO_LIMIT:
        return "a whole number beyond 2**64; give a smaller one."
    if isinstance(value, str) and "\0" in value:
        return f"{value!r}, which has a NUL character; remove it."
    if value is None or isinstance(value, (bool, int, float, str)):
        return None
    return f"{value!r}, which is not a JSON value; quote it to make it text."


def _defect(error: Exception) -> str:
    """The error in one line; a parser's own bug has its kind before it."""
    known = isinstance(error, ValueError | yaml.YAMLError)
    is_yamls_limit = "nesting depth" in str(getattr(error, "problem", None))  # PyYAML 6.0.4's
    if isinstance(error, RecursionError) or is_yamls_limit:
        return f"it is nested more than {_MOST_DEPTH} deep."
    text = " ".join(str(error).split())
    return text if known else f"it is malformed ({type(error).__name__}: {text})."


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".json": _parse_json,
    ".hjson": _parse_hjson,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
}


def is_plain_json(path: Path) -> bool:
    """True if a rank, which has only the standard library, can read the file as it is."""
    try:
        json.loads(input_text(path))
    except (OSError, ValueError):
        return False
    return path.suffix.lower() == ".json"
