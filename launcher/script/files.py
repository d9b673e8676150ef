"""Files of a script that its source names: its own modules, a configuration that hydra composes.

Not: files that its arguments name (``script_source``). What cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, KnobValue, RawConfig, dotted

from ..config_file import MOST_BYTES, read_config
from ..request import LaunchRequest
from .facts import facts_of


def plain_text(path: Path) -> str:
    """Empty where the file is missing, too large or no text."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


_GLOBAL = "@package _global_"
_MOST_MODULES = 50


def script_path(request: LaunchRequest) -> Path:
    """Where the source of a script or a module stands."""
    if request.kind != "module":
        return Path(request.script)
    place = Path(*request.script.split("."))
    return place / "__main__.py" if place.is_dir() else place.with_suffix(".py")


def own_modules(script: Path, text: str) -> tuple[str, ...]:
    """Sources of modules that the script imports and that stand beside it."""
    paths: dict[Path, None] = {}
    for name in sorted(facts_of(text).imported):
        place = script.parent.joinpath(*name.lstrip(".").split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file() and path != script:
                paths[path] = None
    return tuple(filter(None, map(plain_text, list(paths)[:_MOST_MODULES])))


def composed(script: Path, text: str) -> tuple[tuple[str, KnobValue], ...]:
    """Dotted keys of what ``@hydra.main`` names, with the groups in its list of defaults."""
    facts = facts_of(text)
    if not facts.imports("hydra"):
        return ()
    name, folder = facts.keyword("main", "config_name"), facts.keyword("main", "config_path")
    if name is None or not isinstance(name.value, str):
        return ()
    root = script.parent / (str(folder.value) if folder and folder.value else ".")
    keys = dict(_composed(root, Path(name.value).with_suffix(".yaml"), ()))
    return tuple(keys.items())


def _composed(root: Path, file: Path, package: tuple[str, ...]) -> Iterator[tuple[str, KnobValue]]:
    text = plain_text(root / file)
    document = _document(root / file)
    if document is None:
        return
    package = () if _GLOBAL in text else package
    for group, option in _defaults(document):
        yield from _composed(root, Path(group, option).with_suffix(".yaml"), (*package, group))
    for path, value in document.without(("defaults",)).leaves():
        if path and isinstance(value, (bool, int, float, str)):
            yield dotted((*package, *path)), value


def _defaults(document: RawConfig) -> Iterator[tuple[str, str]]:
    listed: Any = document.get(("defaults",))
    for entry in listed if isinstance(listed, list) else ():
        for group, option in entry.items() if isinstance(entry, dict) else ():
            words = str(group).split()
            if isinstance(option, str) and words and words[0] != "override":
                yield words[-1].partition("@")[0], option


def _document(path: Path) -> RawConfig | None:
    try:
        return read_config(path) if path.is_file() else None
    except ConfigError:
        return None
