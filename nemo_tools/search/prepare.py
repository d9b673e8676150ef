"""From the words of a command line to all that a search would do; nothing is launched or written.

Hydra only composes files and OmegaConf resolves interpolations: nothing of a file is run.

Sources: conf/ of the BigNLP HP tool (22.04 to 22.06) and of NeMo-Framework-Launcher's
auto_configurator (23.03 to 24.12).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from tabulate import tabulate

from autoconf_launch.autotuner.sizing import Family, builtin_document, nearest_predefined
from autoconf_launch.core import ConfigError, RawConfig, dotted_name, nearest_known
from autoconf_launch.launcher.config_file import config_text, parse_yaml
from autoconf_launch.launcher.export import export_base
from autoconf_launch.tuning_spaces import CONF, predefined_searches, usual_of

from ..search_flags import SearchRequest
from .candidate_file import candidate_document, with_data_sets
from .candidates import (
    CandidateList,
    SearchMachines,
    candidates_of,
    search_machines,
)
from .question import RECIPE, SearchQuestion, notes_on_rules, question_of
from .settings import (
    KNOWN,
    OLD_TOOL,
    TIMELESS,
    TRAIN,
    ClusterSettings,
    InferenceSettings,
    PathSettings,
    SearchSettings,
    TrackingSettings,
    TrainSettings,
    absolute,
    read_section,
)
from .this_machine import first_shown, local_candidates, local_ranks, refusals

GROUPS = ("cluster", "search_config")
"""Keys whose value names a file of their folder."""
_HYDRA = "hydra"
_BY_LAST = {key.rpartition(".")[2]: key for key in sorted(KNOWN, reverse=True)}


def require_known(keys: Iterable[str]) -> None:
    """Check that each key is known."""
    for key in keys:
        if key not in KNOWN and key.partition(".")[0].partition("/")[0] != _HYDRA:
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


_NODES = dotted_name((*TRAIN, "num_nodes"))
_BCP_NODES = "$NGC_ARRAY_SIZE"
_BCP_VARIABLE = "NGC_ARRAY_SIZE"
_TOOL = "auto_configurator_path"
_OLD_DATA = "${bignlp_hp_tool_path}/../bignlp-scripts/data"
_HERE = "."
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?")
_NODE_LIST = "cluster.nodelist"
_HOSTS = re.compile(r"[\w.,-]*[\w-]\[[\w.,\[\]-]+")
"""Slurm's way to write hosts, ``n[3-4],m7``, which hydra's grammar lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """``key=value`` of the command line; ``value`` as hydra reads it."""

    key: str
    value: str

    @property
    def text(self) -> str:
        """Hydra's override: a group is chosen, any other key is set even if no file has it."""
        if self.key in GROUPS:
            return f"{self.key}={self.value.removesuffix('.yaml')}"
        prefix = "" if self.key.startswith("hydra") else "++"
        is_bare = self.key == _NODE_LIST and _HOSTS.fullmatch(self.value) is not None
        value = f"'{self.value}'" if is_bare else self.value
        return f"{prefix}{self.key}={value}"


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
    overrides, notes = _bcp_nodes(tuple(_parse_overrides(arguments)))
    require_known(override.key for override in overrides)
    _check_choices(overrides, folder)
    found = _compose_config(overrides, folder)
    given = frozenset(override.key for override in overrides)
    kind = found.document.get(("cluster_type",))
    if "cluster" not in given and kind in ("bcp", "local"):
        chosen = Override(key="cluster", value=str(kind))
        found = _compose_config((*overrides, chosen), folder)
    require_known(dotted_name(path) for path, _ in found.document.leaves() if path[0] != "hydra")
    return replace(found, given=given, notes=notes)


def _parse_overrides(arguments: Iterable[str]) -> Iterator[Override]:
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.lstrip("+").strip() or argument.startswith("-"):
            raise ConfigError(
                f"{argument!r} must be key=value, such as search_config=gpt3/5b; see "
                "autoconf-launch search --help."
            )
        yield Override(key=key.lstrip("+").strip(), value=value.strip())


def _bcp_nodes(overrides: tuple[Override, ...]) -> tuple[tuple[Override, ...], tuple[str, ...]]:
    """``num_nodes=$NGC_ARRAY_SIZE`` if no shell, or no Base Command, has replaced it."""
    kept, notes = [], []
    for override in overrides:
        if override.key != _NODES or override.value not in ("", _BCP_NODES):
            kept.append(override)
        elif value := os.environ.get(_BCP_VARIABLE):
            kept.append(replace(override, value=value))
        else:
            notes.append(
                f"{_BCP_VARIABLE} is not set here, as Base Command Platform does; num_nodes is "
                "that of the search configuration."
            )
    return tuple(kept), tuple(notes)


def _check_choices(overrides: Iterable[Override], folder: Path | None) -> None:
    for override in overrides:
        if override.key in GROUPS:
            names = _names(override.key, folder)
            if override.value.removesuffix(".yaml") not in names:
                near = _nearest_size(override) or nearest_known(override.value, names)
                raise ConfigError(f"{override.key}={override.value} is unknown; {near}")


def _nearest_size(override: Override) -> str:
    found = re.fullmatch(r"(\w+)/([0-9.]+)b(?:\.yaml)?", override.value.lower())
    size = _SIZE.fullmatch(found[2]) if found else None
    if override.key != "search_config" or found is None or size is None:
        return ""
    family = Family(found[1]).predefined
    name = nearest_predefined(predefined_searches(), family, float(size[0]))
    return f"did you mean '{name}'?" if name else ""


def _names(group: str, folder: Path | None) -> tuple[str, ...]:
    roots = [root / group for root in (folder, CONF) if root is not None]
    found = {
        path.relative_to(root).with_suffix("").as_posix()
        for root in roots
        for path in root.rglob("*.yaml")
    }
    return tuple(sorted(found))


def _compose_config(overrides: Sequence[Override], folder: Path | None) -> Composed:
    hydra, omegaconf = _libraries()
    texts = [override.text for override in overrides]
    if folder is not None:
        texts.append(f"hydra.searchpath=[file://{CONF}]")
    where = str((folder or CONF).resolve())
    if folder is not None:
        _check_files(folder, overrides)
    try:
        with hydra.initialize_config_dir(where, version_base="1.3"):
            config = hydra.compose("config", overrides=texts, return_hydra_config=True)
        return _resolve_config(omegaconf.OmegaConf, config, {one.key for one in overrides})
    except Exception as error:  # of these libraries; a bad file gives ones of Python, too
        raise ConfigError(f"{where}: {_one_line(error)}") from error


def _check_files(folder: Path, overrides: Iterable[Override]) -> None:
    """Refuse files that are not regular, and hydra's extensions to plain YAML in them."""
    chosen = {Path("config.yaml")}
    for override in overrides:
        if override.key in GROUPS:
            chosen.add(Path(override.key, f"{override.value.removesuffix('.yaml')}.yaml"))
    for path in sorted(folder.rglob("*.yaml")):
        text = config_text(path)
        if path.relative_to(folder) in chosen:
            parse_yaml(text, str(path))


def _libraries() -> tuple[Any, Any]:
    try:
        return import_module("hydra"), import_module("omegaconf")
    except ImportError as error:
        raise ConfigError(
            "search reads its configuration with hydra, which is not installed here; run "
            "pip install 'autoconf-launch[search]'."
        ) from error


def _resolve_config(omega: Any, config: Any, given: set[str]) -> Composed:
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


def _set_paths(omega: Any, config: Any, given: set[str]) -> bool:
    """Set the tool's folder: as given, by its old name, or ours; True if the user gave one."""
    old = config.get(OLD_TOOL) if not _is_missing(omega, config, OLD_TOOL) else None
    if old and "data_dir" not in given and OLD_TOOL in given:
        config["data_dir"] = _OLD_DATA
    if not _is_missing(omega, config, _TOOL) and config.get(_TOOL) is not None:
        return True
    config[_TOOL] = old or _HERE
    if _is_missing(omega, config, OLD_TOOL) and OLD_TOOL in config:
        config[OLD_TOOL] = config[_TOOL]
    return bool(old)


def _is_missing(omega: Any, config: Any, key: str) -> bool:
    return bool(omega.is_missing(config, key))


def _one_line(error: Exception) -> str:
    """The first lines state the error; the others its place in hydra."""
    return " ".join(" ".join(str(error).split("\n")[:2]).split())


def read_settings(composed: Composed) -> SearchSettings:
    """Check every value.

    Raises:
        ConfigError: one is of the wrong kind or missing; the message names its key.
    """
    document = composed.document
    family = composed.choice.partition("/")[0]
    usual = usual_of(family)
    is_bignlp = document.get((OLD_TOOL,)) is not None
    logs = f"{document.get(('base_results_dir',))}/{composed.choice}"
    values = ((path[-1], document.get(path), usual) for path, usual in TIMELESS.items())
    unused = [name for name, value, usual in values if value is not None and value != usual]
    return read_section(
        SearchSettings,
        document,
        choice=composed.choice,
        train=read_section(
            TrainSettings,
            document,
            family=family,
            logs=Path(absolute(logs)),
            search_nodes=0 if is_bignlp else document.get((*TRAIN, "num_nodes")),
            **({"sequence": usual[1]} if usual else {}),
        ),
        inference=read_section(InferenceSettings, document, without_effect=tuple(unused)),
        cluster=read_section(ClusterSettings, document),
        paths=_paths(composed),
        tracking=read_section(TrackingSettings, document).choice,
        given=composed.given,
        notes=composed.notes,
    )


def _paths(composed: Composed) -> PathSettings:
    """A data folder below a tool that the user did not name is ignored."""
    found = read_section(PathSettings, composed.document, results=absolute("."))
    is_named = composed.has_paths or bool({"data_dir", "launcher_scripts_path"} & composed.given)
    return replace(
        found,
        tool=found.tool if composed.has_paths else None,
        data=found.data if is_named else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The whole search; ``machines`` is None if it runs on this machine, or nothing runs."""

    question: SearchQuestion
    found: CandidateList
    machines: SearchMachines | None
    notes: tuple[str, ...]

    @property
    def settings(self) -> SearchSettings:
        return self.question.settings


def prepare_training(request: SearchRequest) -> Prepared:
    """Read, check, choose the model, and list candidates.

    Raises:
        ConfigError: any of it cannot be; nothing has been launched or written by then.
    """
    settings = read_settings(compose(request.overrides, request.folder))
    train, is_local = settings.train, settings.cluster.is_local
    refused: list[str] = []
    if settings.runs_training and request.dry_run:
        refused.append(_refusal_note(lambda: check_paths(settings)))
    elif settings.runs_training:
        check_paths(settings)
    nodes, each = (1, local_ranks(settings)) if is_local else (train.nodes, train.gpus_per_node)
    question, machines = question_of(settings, nodes, each), None
    if not settings.runs_training:  # its base needs no machine, container or data
        found = CandidateList(candidates=(), nodes=nodes, found=0)
    elif settings.cluster.trains_with_ours:
        builtin_document(question.completed_base, micro_batch=1)  # as ranks will read it
        found = local_candidates(question)
        found = first_shown(found, train.limit_runs) if request.dry_run else found
    else:
        asked = question
        if request.dry_run and not any(refused):
            refused.append(_refusal_note(lambda: with_data_sets(asked, is_needed=True)))
        question = with_data_sets(asked, is_needed=not request.dry_run)
        machines = search_machines(settings, each)
        found = candidates_of(question, machines)
        if RECIPE in question.base:
            first = candidate_document(question, found.candidates[0], found.nodes)
            export_base(first, "nemo2")  # as each candidate's script is written
    notes = [*settings.notes, *question.notes]
    if settings.runs_training:
        notes += [*notes_on_rules(question), *found.notes, *filter(None, refused)]
        notes += refusals(question) if is_local and request.dry_run else ()
    return Prepared(
        question=question, found=found, machines=machines, notes=tuple(dict.fromkeys(notes))
    )


def _refusal_note(check: Callable[[], object]) -> str:
    """Reason why a run would end at once, for a dry run, which needs neither data nor packages."""
    try:
        check()
    except ConfigError as error:
        return f"A run would be refused here: {error}"
    return ""


def check_paths(settings: SearchSettings, *, needs_data: bool = True) -> None:
    """Check that data, mounts and container exist before anything is launched.

    Runs on this machine need neither, but files on the command line must exist.
    """
    paths, cluster = settings.paths, settings.cluster
    is_ours = cluster.trains_with_ours
    if not is_ours:
        if paths.data is None and needs_data:
            raise ConfigError("data_dir is not given; give the folder of the training data.")
        if paths.container is None:
            raise ConfigError("training_container is not given; give an image, or a .sqsh file.")
    if paths.data is not None and (not is_ours or "data_dir" in settings.given):
        _require("data_dir", paths.data)
    for mount in paths.mounts:
        _require("container_mounts", mount.partition(":")[0])
    if paths.container and paths.container.startswith(("/", "./", "../")):
        _require("training_container", paths.container)


def _require(key: str, path: str) -> None:
    try:
        exists = Path(path).exists()
    except OSError as error:
        raise ConfigError(f"{key}: it cannot be read: {error.strerror}.") from error
    if not exists:
        raise ConfigError(f"{key}: {path} does not exist; give a path that does.")


def first_rows(rows: Sequence[Sequence[object]], headers: Sequence[str], top: int) -> str:
    """A table of the first rows, and how many more there are; 0: all."""
    table = tabulate(rows[: top or None], headers=headers, floatfmt=".4g")
    more = len(rows) - top if top else 0
    return f"{table}\n… and {more} more; --top 0 lists all." if more > 0 else table


def json_document(model: str, **facts: object) -> str:
    """The output of a search, for programs."""
    return json.dumps({"schema_version": 1, "model": model, **facts}, indent=2)
