"""From a request to all that a search would do; nothing is launched or written. Not: doing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError, NothingFeasibleError

from .candidates import CandidateList, candidates_of
from .compose import compose
from .data_sets import with_data_sets
from .flags import SearchRequest
from .nemo_rules import notes_on_rules
from .planner_points import SearchMachines, search_machines
from .question import SearchQuestion, question_of
from .room import refusals
from .settings import ClusterKind, SearchSettings, read_settings
from .this_machine import first_shown, local_candidates, local_ranks

_BOTH_OFF = "run_inference_hp_search=False writes the base configuration alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All of it; ``machines`` is None where runs are on this machine, or none are made."""

    question: SearchQuestion
    found: CandidateList
    machines: SearchMachines | None
    notes: tuple[str, ...]

    @property
    def settings(self) -> SearchSettings:
        """As they were read."""
        return self.question.settings


def prepare(request: SearchRequest) -> Prepared:
    """Read, check, choose the model, and list candidates.

    Raises:
        ConfigError: any of it cannot be; nothing has been launched or written by then.
        NothingFeasibleError: an inference search alone is asked for.
    """
    settings = read_settings(compose(request.overrides, request.folder))
    is_local = settings.cluster.kind is ClusterKind.LOCAL
    if not settings.runs_training and settings.runs_inference:
        raise NothingFeasibleError(f"There is no inference search yet; {_BOTH_OFF}.")
    if not settings.runs_training:
        return _base_alone(settings, is_local=is_local)
    if not request.dry_run:
        check_paths(settings)
    if is_local:
        question = question_of(settings, 1, local_ranks(settings))
        found, machines = local_candidates(question), None
        if request.dry_run:
            found = first_shown(found, settings.train.limit_runs)
    else:
        each = settings.train.gpus_per_node
        question = question_of(settings, settings.train.nodes, each)
        question = with_data_sets(question, is_needed=not request.dry_run)
        machines = search_machines(settings, each)
        found = candidates_of(question, machines)
    notes = (
        *(*settings.notes, *_inference(settings), *question.notes),
        *(*notes_on_rules(question), *found.notes),
        *(refusals(question) if is_local and request.dry_run else ()),
    )
    return Prepared(
        question=question, found=found, machines=machines, notes=tuple(dict.fromkeys(notes))
    )


def _base_alone(settings: SearchSettings, *, is_local: bool) -> Prepared:
    """The base configuration needs no machine, container or data, wherever runs would be."""
    nodes = 1 if is_local else settings.train.nodes
    each = local_ranks(settings) if is_local else settings.train.gpus_per_node
    question = question_of(settings, nodes, each)
    notes = (*settings.notes, *question.notes)
    return Prepared(
        question=question,
        found=CandidateList(candidates=(), nodes=nodes, found=0),
        machines=None,
        notes=tuple(dict.fromkeys(notes)),
    )


def check_paths(settings: SearchSettings) -> None:
    """See that data, mounts and container are there before anything is launched.

    Runs on this machine need neither, but what the command line names must exist.

    Raises:
        ConfigError: one is missing.
    """
    paths, is_local = settings.paths, settings.cluster.kind is ClusterKind.LOCAL
    if not is_local:
        if paths.data is None:
            raise ConfigError("data_dir is not given; give the folder of the training data.")
        if paths.container is None:
            raise ConfigError("training_container is not given; give an image, or a .sqsh file.")
    if paths.data is not None and (not is_local or "data_dir" in settings.given):
        _require("data_dir", paths.data)
    for mount in paths.mounts:
        _require("container_mounts", mount.partition(":")[0])
    if paths.container and paths.container.startswith(("/", "./", "../")):
        _require("training_container", paths.container)


def _require(key: str, path: str) -> None:
    if not Path(path).exists():
        raise ConfigError(f"{key}: {path} does not exist; give a path that does.")


def _inference(settings: SearchSettings) -> tuple[str, ...]:
    if not settings.runs_inference:
        return ()
    return (
        "Only the training search runs: there is no inference search yet "
        "(run_inference_hp_search=False omits this line).",
    )
