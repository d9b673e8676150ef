"""The script's own documents: YAML, JSON or TOML files that its arguments name.

A value is changed in the text, at the place that the parser reports. Comments, tags, anchors,
interpolations and all other values stay as they are.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import yaml

from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name

from ..config_file import MOST_VALUES, compose_yaml
from ..script import NamedFile, ScriptSource
from .base import RenderedFile
from .documents import edit_toml, parse_toml
from .launch_inputs import LaunchInputs, find_argument, put_argument

_YAML, _JSON, _TOML = (".yaml", ".yml"), ".json", ".toml"
_MOST_CHARACTERS = 1 << 20
_MOST_DEPTH = 64
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_OF_CONFIG = re.compile(r"config|cfg|conf(_|$)|yaml|hparams|argv", re.IGNORECASE)
"""Names of a path to a configuration file."""
_INCLUDES = re.compile(
    r"!include\b|^\s*[\"']?(_base_|_BASE_|__base__|extends|include)[\"']?\s*:", re.MULTILINE
)
_HYDRAS = ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd")
"""Flags whose file hydra looks up in its own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A scalar of a text.

    Attributes:
        path: keys that lead to it; an item of a list has its index as its key.
        value: in the text's format; the text itself under a tag or an interpolation.
        start: index of its first character in the text, inside its quotes; 0 in TOML.
        end: index behind its last character; 0 in TOML.
    """

    path: KeyPath
    value: Any
    start: int = 0
    end: int = 0


def script_documents(source: ScriptSource) -> tuple[NamedFile, ...]:
    """Files of the script's arguments that hold values; none if a framework reads them."""
    if source.config_argument is not None or source.composed:
        return ()
    return tuple(
        file
        for file in source.files
        if file.flag not in _HYDRAS and leaves_of(file.text, _kind(file))
    )


def document_values(source: ScriptSource) -> RawConfig:
    """The values of all documents; a later file overrides an earlier one."""
    leaves = [
        leaf for file in script_documents(source) for leaf in leaves_of(file.text, _kind(file))
    ]
    return RawConfig({}).with_values((leaf.path, leaf.value) for leaf in leaves)


def document_key(source: ScriptSource, name: str) -> KeyPath | None:
    """The key that people call ``train.batch_size``; None if no document has it.

    An argument of the same name overrides it.
    """
    if name.startswith("-") or find_argument(source.script_args, (name,)) is not None:
        return None
    paths = (path for path, _ in document_values(source).leaves())
    return next((path for path in paths if dotted_name(path) == name), None)


def file_of_key(source: ScriptSource, path: KeyPath) -> str:
    """Path of the last document that has a key."""
    holding = [
        file.path
        for file in script_documents(source)
        if any(leaf.path == path for leaf in leaves_of(file.text, _kind(file)))
    ]
    return holding[-1] if holding else ""


def with_documents(
    source: ScriptSource,
    inputs: LaunchInputs,
    folder: str,
    made: tuple[RenderedFile, ...] = (),
) -> tuple[LaunchInputs, tuple[RenderedFile, ...]]:
    """Edited copies of the documents whose values differ in ``inputs``, and their paths in argv.

    ``made`` are copies that the arguments already name.
    """
    edits = {e.path: e.after for e in document_values(source).diff(inputs.document)}
    arguments, copies = inputs.arguments, {file.name: file for file in made}
    names = set[str]()
    for file in script_documents(source):
        name = _copy_name(file, names)
        names.add(name)
        before = copies[name].text if name in copies else file.text
        text = edit_leaves(before, _kind(file), edits)
        if text == before:
            continue
        if name not in copies:
            arguments = _with_path(arguments, source, file, f"{folder}/{name}")
        copies[name] = RenderedFile(name=name, text=text)
    changed = LaunchInputs(
        arguments=arguments, environment=inputs.environment, document=inputs.document
    )
    return changed, tuple(copies.values())


def on_folder_of_document(source: ScriptSource, path: KeyPath) -> str | None:
    """A warning if a copy of a key's document in another folder may miss files; else None."""
    name = file_of_key(source, path)
    files = [file for file in script_documents(source) if file.path == name]
    folders = {folder for facts in source.all_facts for folder in facts.in_folders}
    own = {file.flag.lstrip("-").replace("-", "_") for file in files}
    if any(folder in own or _OF_CONFIG.search(folder) for folder in folders):
        reason = f"{source.script or 'The script'} uses the folder of its configuration file"
    elif any(_INCLUDES.search(file.text) for file in files):
        reason = f"{name} includes other files"
    else:
        return None
    return (
        f"{reason}, but trials read a copy of {name} in another folder: give paths that are "
        "relative to its folder in full."
    )


def edit_leaves(text: str, kind: str, edits: Mapping[KeyPath, Any]) -> str:
    """The text with other values; paths that it lacks are skipped."""
    leaves = [
        leaf
        for leaf in leaves_of(text, kind)
        if leaf.path in edits and leaf.value != edits[leaf.path]
    ]
    if kind == _TOML:
        return edit_toml(text, [(leaf.path, edits[leaf.path]) for leaf in leaves])
    changed = {(leaf.start, leaf.end): edits[leaf.path] for leaf in leaves}
    for (start, end), value in sorted(changed.items(), reverse=True):
        quoted = text[start - 1 : start] in ("'", '"') and text[end : end + 1] in ("'", '"')
        written = str(value) if quoted else _as_text(value)
        text = f"{text[:start]}{written}{text[end:]}"
    return text


@lru_cache(maxsize=64)
def leaves_of(text: str, kind: str) -> tuple[Leaf, ...]:
    """The scalars of a text whose places are known; none if it cannot be read."""
    if len(text) > _MOST_CHARACTERS:
        return ()
    if kind == _TOML:
        return tuple(_toml_leaves(text))
    root = compose_yaml(text.replace("\t", " ") if kind == _JSON else text)
    found: dict[KeyPath, Leaf] = {}
    for visited, (path, node) in enumerate(_nodes(root, ()) if root else ()):
        if visited >= MOST_VALUES:
            return ()
        if isinstance(node, yaml.ScalarNode) and (leaf := _leaf(path, node, text)) is not None:
            found[path] = leaf
    return tuple(found.values())


def _kind(file: NamedFile) -> str:
    suffix = PurePath(file.path).suffix.lower()
    return suffix if suffix in (*_YAML, _JSON, _TOML) else ""


def _nodes(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, yaml.Node]]:
    """Nodes with their paths; content that ``<<`` merges into a section precedes its own keys."""
    yield path, node
    for key, inner in _children(node) if len(path) < _MOST_DEPTH else ():
        yield from _nodes(inner, path if key is None else (*path, key))


def _children(node: yaml.Node) -> Iterator[tuple[str | None, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        yield from ((str(number), item) for number, item in enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.tag == _MERGE]
        for value in merged:
            sections = value.value if isinstance(value, yaml.SequenceNode) else [value]
            yield from ((None, section) for section in reversed(sections))
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                yield key.value, value


def _leaf(path: KeyPath, node: yaml.ScalarNode, text: str) -> Leaf | None:
    end = node.end_mark.index - (1 if node.style in ("'", '"') else 0)
    start = end - len(node.value)
    if not path or node.style in ("|", ">") or text[max(0, start) : end] != node.value:
        return None
    return Leaf(path=path, value=_value_of(node), start=start, end=end)


def _value_of(node: yaml.ScalarNode) -> Any:
    kind, digits = node.tag.removeprefix(_TAG), node.value.replace("_", "")
    if kind == "int" and digits.lstrip("+-").isdecimal():
        return int(digits)
    if kind == "bool":
        return node.value.lower() in ("true", "yes", "on")
    return None if kind == "null" else node.value


def _toml_leaves(text: str) -> Iterator[Leaf]:
    try:
        document = parse_toml(text).to_dict()
    except ConfigError:
        return
    for path, value in _flat(document, ()):
        if isinstance(value, (bool, int, float)):
            yield Leaf(path=path, value=value)


def _flat(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from _flat(inner, (*path, str(key)))
    else:
        yield path, value


def _as_text(value: Any) -> str:
    """A value as YAML 1.1 and JSON both read it: YAML wants a point in ``1.0e-05``."""
    if isinstance(value, float) and math.isfinite(value):
        mantissa, e, power = repr(value).partition("e")
        return f"{mantissa}.0e{power}" if e and "." not in mantissa else repr(value)
    return json.dumps(value, ensure_ascii=False)


def _copy_name(file: NamedFile, taken: set[str]) -> str:
    """The file's own name, which scripts name their runs after; our own files are all JSON."""
    name = PurePath(file.path).name
    name = f"script_{name}" if _kind(file) == _JSON else name
    number = 2
    while name in taken:
        name, number = f"{number}_{PurePath(file.path).name}", number + 1
    return name


def _with_path(
    arguments: tuple[str, ...], source: ScriptSource, file: NamedFile, path: str
) -> tuple[str, ...]:
    """The arguments with another path for a document; earlier edits may have moved its word."""
    if file.position is None:
        return put_argument(arguments, None, file.flag, path)
    word, position = source.script_args[file.position], file.position
    places = [index for index, other in enumerate(arguments) if other == word]
    if not places:
        return arguments
    place = min(places, key=lambda index: abs(index - position))
    joined = f"{file.flag}=" if file.flag and word.startswith(f"{file.flag}=") else ""
    return (*arguments[:place], f"{joined}{path}", *arguments[place + 1 :])
