"""Plain TOML tables: read their scalars, and edit values in the text. Not: a TOML library.

What is not edited stays to the letter, comments included. Dotted keys, inline tables and strings
over several lines are left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from autoconf_launch.core import Edit, KeyPath, RawConfig

_HEADER = re.compile(r"^\s*\[([A-Za-z0-9_.\-]+)\]\s*(?:#.*)?$")
_ENTRY = re.compile(r"^(\s*)([A-Za-z0-9_\-]+)(\s*=\s*)(.*?)(\s*(?:#[^\"']*)?)$")


def parse_toml(text: str) -> RawConfig:
    """The scalars and one-line lists of a text, by table."""
    document = RawConfig({})
    for _, path, match in _entries(text.splitlines()):
        document = document.with_value(path, _value(match[4]))
    return document


def edit_toml(text: str, edits: tuple[Edit, ...]) -> str:
    """The text with other values; a new key stands at the end of its table."""
    lines = text.splitlines()
    for edit in edits:
        lines = _edited(lines, edit.path, edit.after)
    return "\n".join(lines) + "\n"


def toml_of(document: RawConfig) -> str:
    """A document of tables as text."""
    tables: dict[KeyPath, list[str]] = {}
    for path, value in document.leaves():
        tables.setdefault(path[:-1], []).append(f"{path[-1]} = {_text(value)}")
    return "\n\n".join("\n".join((f"[{'.'.join(t)}]", *rows)) for t, rows in tables.items()) + "\n"


def _entries(lines: list[str]) -> Iterator[tuple[int, KeyPath, re.Match[str]]]:
    table: KeyPath = ()
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        if header:
            table = tuple(header[1].split("."))
        elif entry := _ENTRY.match(line):
            yield number, (*table, entry[2]), entry


def _edited(lines: list[str], path: KeyPath, value: Any) -> list[str]:
    for number, found, match in _entries(lines):
        if found == path:
            new = (
                []
                if value is None
                else [f"{match[1]}{match[2]}{match[3]}{_text(value)}{match[5]}"]
            )
            return [*lines[:number], *new, *lines[number + 1 :]]
    if value is None:
        return lines
    entry = f"{path[-1]} = {_text(value)}"
    last = max((n for n, found, _ in _entries(lines) if found[:-1] == path[:-1]), default=None)
    if last is None:
        heads = [n for n, line in enumerate(lines) if _is_header(line, path[:-1])]
        if not heads:
            return [*lines, "", f"[{'.'.join(path[:-1])}]", entry]
        last = heads[-1]
    return [*lines[: last + 1], entry, *lines[last + 1 :]]


def _is_header(line: str, table: KeyPath) -> bool:
    match = _HEADER.match(line)
    return match is not None and tuple(match[1].split(".")) == table


def _value(text: str) -> Any:
    bare = text.strip()
    if bare in ("true", "false"):
        return bare == "true"
    if bare[:1] == "'" and bare[-1:] == "'":
        return bare[1:-1]
    try:
        return json.loads(bare.replace("_", "") if bare[:1].isdigit() else bare)
    except ValueError:
        return bare


def _text(value: Any) -> str:
    return json.dumps(value)
