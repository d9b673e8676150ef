"""From a request to all that a search would do; nothing is launched or written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from autoconf_launch.autotuner.sizing import builtin_document
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.export import export_base

from ..search_flags import SearchRequest
from .candidate_file import candidate_document, with_data_sets
from .candidates import (
    CandidateList,
    SearchMachines,
    candidates_of,
    search_machines,
)
from .compose import compose, read_settings
from .question import RECIPE, SearchQuestion, notes_on_rules, question_of
from .settings import SearchSettings
from .this_machine import first_shown, local_candidates, local_ranks, refusals


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
    """Why a run would end at once, for a dry run, which needs neither data nor packages."""
    try:
        check()
    except ConfigError as error:
        return f"A run would be refused here: {error}"
    return ""


def check_paths(settings: SearchSettings, *, needs_data: bool = True) -> None:
    """Check that data, mounts and container exist before anything is launched.

    Runs on this machine need neither, but what the command line names must exist.
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
