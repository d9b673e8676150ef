"""A configuration in any of the forms that ``initialize`` takes.

Those belong to the launcher, which writes strict JSON for its ranks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.core import ConfigError, RawConfig, ResolvedConfig, resolve

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | RawConfig | ResolvedConfig


def read_engine_config(source: ConfigSource, *, world_size: int) -> ResolvedConfig:
    """The configuration of a JSON file, a mapping or a document for ``world_size`` ranks.

    Raises:
        ConfigError: the file is missing or no strict JSON, or its values cannot be applied.
    """
    if isinstance(source, ResolvedConfig):
        return _for_this_world(source, world_size)
    if isinstance(source, (str, os.PathLike)):
        source = _load(Path(source))
    raw = source if isinstance(source, RawConfig) else RawConfig(source)
    return resolve(raw, world_size=world_size)


def _for_this_world(config: ResolvedConfig, world_size: int) -> ResolvedConfig:
    if config.layout.world_size != world_size:
        raise ConfigError(
            f"the configuration is for {config.layout.world_size} ranks, but {world_size} run; "
            f"resolve it with world_size={world_size}."
        )
    return config


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}.") from error
    return _parse(path, text)


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not strict JSON: {error}. Fix it, or start the script with "
            "autoconf-launch, which reads hjson and YAML too and hands its ranks JSON."
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds {text.strip()[:20]!r}, but must be one object ({{…}}).")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    section = dict(pairs)
    if len(section) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' is given twice in one section")
    return section


def _constant(name: str) -> float:
    """Infinity, which the launcher's files may have as well; NaN is refused."""
    if name == "NaN":
        raise ValueError(f"{name} is not a JSON value")
    return float(name)
