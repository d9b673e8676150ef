"""Composes the document of a search from files and words, as NVIDIA's tool does.

Hydra only composes files and OmegaConf resolves interpolations: nothing of a file is run.

Sources: conf/ of the BigNLP HP tool (22.04 to 22.06) and of NeMo-Framework-Launcher's
auto_configurator (23.03 to 24.12).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import Family, nearest_predefined
from autoconf_launch.core import ConfigError, RawConfig, dotted_name, nearest_known
from autoconf_launch.launcher.config_file import config_text, parse_yaml
from autoconf_launch.tuning_spaces import CONF, predefined_searches

from .settings import KNOWN, OLD_TOOL, TRAIN

GROUPS = ("cluster", "search_config")
"""Keys whose value names a file of their folder."""
_HYDRA = "hydra"
_BY_LAST = {key.rpartition(".")[2]: key for key in sorted(KNOWN, reverse=True)}
_NODES = dotted_name((*TRAIN, "num_nodes"))
_BCP_VARIABLE = "NGC_ARRAY_SIZE"
_TOOL = "auto_configurator_path"
_OLD_DATA = "${bignlp_hp_tool_path}/../bignlp-scripts/data"
_HERE = "."
_SIZED = re.compile(r"(\w+)/([0-9]+(?:\.[0-9]+)?)b(?:\.yaml)?")
_NODE_LIST = "cluster.nodelist"
_HOSTS = re.compile(r"[\w.,-]*[\w-]\[[\w.,\[\]-]+")
"""Slurm's way to write hosts, ``n[3-4],m7``, which hydra's grammar lacks."""


def require_known(keys: Iterable[str]) -> None:
    """Check that each key is known."""
    for key in keys:
        if key not in KNOWN and re.split("[./]", key)[0] != _HYDRA:
            raise ConfigError(f"{key} is unknown; {_nearest(key)}")


def _nearest(key: str) -> str:
    """Names like this one, by the last word first: people skip the sections."""
    last = key.rpartition(".")[2]
    near = [
        *([_BY_LAST[last]] if last in _BY_LAST else []),
        *get_close_matches(key, sorted(KNOWN), n=1),
        *(_BY_LAST[word] for word in get_close_matches(last, sorted(_BY_LAST), n=1)),
    ]
    if near:
        return f"did you mean '{near[0]}'?"
    return "keys are those of NVIDIA's conf/config.yaml, such as search_config=gpt3/5b."


def _hydra_text(key: str, value: str) -> str:
    """Hydra's override: a group is chosen, any other key is set even if no file has it."""
    if key in GROUPS:
        return f"{key}={value.removesuffix('.yaml')}"
    prefix = "" if key.startswith("hydra") else "++"
    is_bare = key == _NODE_LIST and _HOSTS.fullmatch(value) is not None
    return f"{prefix}{key}='{value}'" if is_bare else f"{prefix}{key}={value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A composed document without interpolations.

    Attributes:
        choice: the search configuration by its name, such as ``gpt3/5b``.
        given: keys of the command line.
        has_paths: whether the user named the folder of NVIDIA's tool or ours.
        notes: values that were read otherwise than written.
    """

    document: RawConfig
    choice: str
    given: frozenset[str]
    has_paths: bool
    notes: tuple[str, ...] = ()


def compose(arguments: Sequence[str], folder: Path | None = None) -> Composed:
    """Compose ``config.yaml`` of a folder with overrides, as ``python3 main.py`` would.

    Args:
        arguments: ``key=value`` words.
        folder: the user's own; files that it lacks are taken from ours.

    Raises:
        ConfigError: hydra is missing, a key or name is unknown, or a file cannot be read.
    """
    overrides = dict(_parse_overrides(arguments))
    require_known(overrides)
    notes = _bcp_nodes(overrides)
    _check_choices(overrides, folder)
    found, given = _compose_config(overrides, folder), frozenset(overrides)
    kind = found.document.get(("cluster_type",))
    if "cluster" not in given and kind in ("bcp", "local"):
        found = _compose_config({**overrides, "cluster": kind}, folder)
    require_known(dotted_name(path) for path, _ in found.document.leaves() if path[0] != _HYDRA)
    return replace(found, given=given, notes=notes)


def _parse_overrides(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.lstrip("+").strip() or argument.startswith("-"):
            raise ConfigError(
                f"{argument!r} must be key=value, such as search_config=gpt3/5b; see "
                "autoconf-launch search --help."
            )
        yield key.lstrip("+").strip(), value.strip()


def _bcp_nodes(overrides: dict[str, str]) -> tuple[str, ...]:
    """Set ``num_nodes=$NGC_ARRAY_SIZE`` if no shell has, or skip it with a note elsewhere."""
    if overrides.get(_NODES) not in ("", f"${_BCP_VARIABLE}"):
        return ()
    if value := os.environ.get(_BCP_VARIABLE):
        overrides[_NODES] = value
        return ()
    del overrides[_NODES]
    return (
        f"{_BCP_VARIABLE} is not set here, as Base Command Platform does; num_nodes is that of "
        "the search configuration.",
    )


def _check_choices(overrides: Mapping[str, str], folder: Path | None) -> None:
    for key in GROUPS:
        if (value := overrides.get(key)) is None:
            continue
        if value.removesuffix(".yaml") not in (names := _names(key, folder)):
            near = (key == "search_config" and _nearest_size(value)) or nearest_known(value, names)
            raise ConfigError(f"{key}={value} is unknown; {near}")


def _nearest_size(value: str) -> str:
    if (found := _SIZED.fullmatch(value.lower())) is None:
        return ""
    family = Family(found[1]).predefined
    name = nearest_predefined(predefined_searches(), family, float(found[2]))
    return f"did you mean '{name}'?" if name else ""


def _names(group: str, folder: Path | None) -> tuple[str, ...]:
    roots = [root / group for root in (folder, CONF) if root is not None]
    found = {
        path.relative_to(root).with_suffix("").as_posix()
        for root in roots
        for path in root.rglob("*.yaml")
    }
    return tuple(sorted(found))


def _compose_config(overrides: Mapping[str, str], folder: Path | None) -> Composed:
    hydra, omegaconf = _libraries()
    texts = [_hydra_text(key, value) for key, value in overrides.items()]
    where = str((folder or CONF).resolve())
    if folder is not None:
        texts.append(f"hydra.searchpath=[file://{CONF}]")
        _check_files(folder, overrides)
    try:
        with hydra.initialize_config_dir(where, version_base="1.3"):
            config = hydra.compose("config", overrides=texts, return_hydra_config=True)
        return _resolve_config(omegaconf.OmegaConf, config, overrides)
    except Exception as error:  # of these libraries; a bad file gives ones of Python, too
        # the first lines state the error; the others its place in hydra
        said = " ".join(" ".join(str(error).split("\n")[:2]).split())
        raise ConfigError(f"{where}: {said}") from error


def _check_files(folder: Path, overrides: Mapping[str, str]) -> None:
    """Refuse files that are not regular, and hydra's extensions to plain YAML in them."""
    groups = (key for key in GROUPS if key in overrides)
    chosen = {Path(key, f"{overrides[key].removesuffix('.yaml')}.yaml") for key in groups}
    for path in sorted(folder.rglob("*.yaml")):
        text = config_text(path)
        if path.relative_to(folder) in {Path("config.yaml"), *chosen}:
            parse_yaml(text, str(path))


def _libraries() -> tuple[Any, Any]:
    try:
        return import_module("hydra"), import_module("omegaconf")
    except ImportError as error:
        raise ConfigError(
            "search reads its configuration with hydra, which is not installed here; run "
            "pip install 'autoconf-launch[search]'."
        ) from error


def _resolve_config(omega: Any, config: Any, given: Collection[str]) -> Composed:
    choice = str(config.hydra.runtime.choices["search_config"])
    omega.set_readonly(config, False)
    omega.set_struct(config, False)
    if "search_config_value" not in given:
        config["search_config_value"] = choice  # hydra's own resolver needs hydra.main
    has_paths = _set_paths(omega, config, given)
    del config["hydra"]
    document = omega.to_container(config, resolve=True, throw_on_missing=True)
    return Composed(
        document=RawConfig(document), choice=choice, given=frozenset(), has_paths=has_paths
    )


def _set_paths(omega: Any, config: Any, given: Collection[str]) -> bool:
    """Set the tool's folder: as given, by its old name, or ours; True if the user gave one."""
    old = config.get(OLD_TOOL) if not omega.is_missing(config, OLD_TOOL) else None
    if old and "data_dir" not in given and OLD_TOOL in given:
        config["data_dir"] = _OLD_DATA
    if not omega.is_missing(config, _TOOL) and config.get(_TOOL) is not None:
        return True
    config[_TOOL] = old or _HERE
    if omega.is_missing(config, OLD_TOOL) and OLD_TOOL in config:
        config[OLD_TOOL] = config[_TOOL]
    return bool(old)
