"""From the words of a command line to all that a search would do; nothing is launched or written.

The model's size is given or recommended; its configuration is NeMo's table, ours, or the user's
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.sizing import (
    Budget,
    ChosenModel,
    Family,
    ModelQuestion,
    RunPlan,
    builtin_document,
    choose_model,
    exact_training_days,
    family_named,
    recommended_size_b,
)
from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name
from autoconf_launch.launcher.estimates import base_document, custom_model
from autoconf_launch.launcher.export import export_base
from autoconf_launch.tuning_spaces import generation_of, shipped_base_config, tables, usual_of

from ..search_flags import SearchRequest
from .candidate_file import candidate_document, with_data_sets
from .candidates import CandidateList, SearchMachines, candidates_of, search_machines
from .compose import Composed, compose
from .question import (
    RECIPE,
    SearchQuestion,
    batch_path,
    notes_on_rules,
    section,
    with_facts,
)
from .settings import (
    OLD_TOOL,
    TIMELESS,
    TRAIN,
    ClusterKind,
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

_INDEX_FOLDER = "data_index_files"
_LENGTH = dotted_name((*TRAIN, "seq_length"))
_LENGTHS: tuple[KeyPath, ...] = (
    ("data", "seq_length"),
    (*RECIPE, "seq_length"),
    ("model", "data", "seq_length"),
    ("model", "encoder_seq_length"),
    ("model", "seq_length"),
    ("model", "max_position_embeddings"),
)
_MADE_HERE = ("autoconf", "parameters")
"""Stands in a base configuration of ours, not in a user's whole file."""


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


def question_of(settings: SearchSettings, nodes: int, gpus_per_node: int) -> SearchQuestion:
    """Recommend a size if none is given, and derive the base configuration.

    Raises:
        ConfigError: the size is above the family's limit, the budget gives none, or the
            user's file cannot be read.
    """
    train = settings.train
    family = family_named(train.family)
    budget = Budget(
        gpus=nodes * gpus_per_node, tflops_per_gpu=train.tflops_per_gpu, tokens_b=train.tokens_b
    )
    size_b, notes = _size(family, train, budget)
    chosen = _choose_model(settings, family, size_b)
    is_bcp = settings.cluster.kind is ClusterKind.BCP
    plan = RunPlan(
        days=train.max_days or exact_training_days(family.name, size_b, budget),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tokens_b=train.tokens_b,
        wandb_project=settings.tracking.project,
        index_folder=f"{settings.paths.results}/{_INDEX_FOLDER}" if is_bcp else None,
    )
    base = _base(settings, chosen, plan)
    if chosen.asked.sequence != train.sequence:
        notes += (
            f"custom_config {train.custom_config} has samples of {chosen.asked.sequence} tokens; "
            f"seq_length = {train.sequence} is ignored.",
        )
    return SearchQuestion(
        scope=settings.scope,
        model=replace(chosen, asked=replace(chosen.asked, vocabulary=train.vocabulary)),
        base=base,
        method=base.get((*section(base, family), "activations_checkpoint_method")),
        tokens_b=train.tokens_b,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        notes=(*notes, *(chosen.notes if _MADE_HERE in base else ())),
    )


def _size(family: Family, train: TrainSettings, budget: Budget) -> tuple[float, tuple[str, ...]]:
    if train.size_b is not None:
        return train.size_b, ()
    if train.max_days is None:
        raise ConfigError(
            "search_config.train_settings.model_size_in_b is not given, and no max_training_days "
            "to recommend one for; give one of them."
        )
    size_b = recommended_size_b(family.name, budget, train.max_days)
    return size_b, (
        f"You can train a {size_b:g} B model in {train.max_days:g} days on {budget.gpus} GPUs, "
        f"if each achieves {budget.tflops_per_gpu:g} TFLOP/s (max_training_days, tflops_per_gpu).",
    )


def _choose_model(settings: SearchSettings, family: Family, size_b: float) -> ChosenModel:
    """The tables' model, or the user file's; the command line wins."""
    train = settings.train
    asked = ModelQuestion(
        family=family,
        size_b=size_b,
        vocabulary=train.vocabulary,
        sequence=train.sequence,
        gpu_memory_gb=train.gpu_memory_gb,
        batch=train.global_batch,
    )
    chosen = choose_model(tables(generation_of(family)), asked)
    custom = _custom_file(train)
    if custom is None:
        return chosen
    found = custom_model(chosen, custom)
    if _LENGTH in settings.given:
        own = found.architecture
        found = replace(
            found,
            asked=replace(found.asked, sequence=train.sequence),
            architecture=replace(own, positions=train.sequence if own.positions else 0),
        )
    if train.global_batch is None:
        return found
    return replace(found, batch=replace(found.batch, global_batch=train.global_batch))


def _custom_file(train: TrainSettings) -> Path | None:
    """The user's file; our copy replaces a missing file of NVIDIA's."""
    if train.custom_config is None:
        return None
    path = Path(train.custom_config)
    if path.is_file():
        return path
    shipped = shipped_base_config(path.stem) if path.parent.name == "base_configs" else None
    if shipped is None:
        raise ConfigError(
            f"custom_config {path} does not exist; give a YAML file, or null for NVIDIA's tables."
        )
    return shipped


def _base(settings: SearchSettings, chosen: ChosenModel, plan: RunPlan) -> RawConfig:
    train = settings.train
    base = base_document(chosen, plan, _custom_file(train))
    if train.global_batch is not None:
        base = base.with_value(batch_path(base), train.global_batch)
    if _LENGTH in settings.given:
        base = base.with_values((path, train.sequence) for path in _LENGTHS if path in base)
    asked = replace(chosen.asked, vocabulary=train.vocabulary)
    return with_facts(base, asked, train.tokens_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The whole search; ``machines`` is None if it runs on this machine, or nothing runs."""

    settings: SearchSettings
    question: SearchQuestion
    found: CandidateList
    machines: SearchMachines | None
    notes: tuple[str, ...]


def prepare_training(request: SearchRequest) -> Prepared:
    """Read, check, choose the model, and list candidates.

    Raises:
        ConfigError: any of it cannot be; nothing has been launched or written by then.
    """
    settings = read_settings(compose(request.overrides, request.folder))
    train, is_local = settings.train, settings.cluster.is_local
    checks: list[Callable[[], object]] = [lambda: check_paths(settings)]
    nodes, each = (1, local_ranks(settings)) if is_local else (train.nodes, train.gpus_per_node)
    if settings.runs_training and not request.dry_run:
        check_paths(settings)
    question, machines = question_of(settings, nodes, each), None
    if not settings.runs_training:  # its base needs no machine, container or data
        found = CandidateList(candidates=(), nodes=nodes, found=0)
    elif settings.cluster.trains_with_ours:
        builtin_document(question.completed_base, micro_batch=1)  # as ranks will read it
        found = local_candidates(question)
        found = first_shown(found, train.limit_runs) if request.dry_run else found
    else:
        asked, data = question, settings.paths.data
        checks.append(lambda: with_data_sets(asked, data, is_needed=True))
        question = with_data_sets(asked, data, is_needed=not request.dry_run)
        machines = search_machines(question)
        found = candidates_of(question, machines)
        if RECIPE in question.base:
            first = candidate_document(question, found.candidates[0], found.nodes)
            export_base(first, "nemo2")  # as each candidate's script is written
    notes = [*settings.notes, *question.notes]
    if settings.runs_training:
        notes += [*notes_on_rules(question), *_notes_here(settings, question), *found.notes]
        notes += _refusal_note(checks) if request.dry_run else ()
        notes += refusals(question) if is_local and request.dry_run else ()
    return Prepared(
        settings=settings,
        question=question,
        found=found,
        machines=machines,
        notes=tuple(dict.fromkeys(notes)),
    )


def _notes_here(settings: SearchSettings, question: SearchQuestion) -> Iterator[str]:
    """Values of the command line that runs of our own runtime do not read."""
    if not settings.cluster.trains_with_ours:
        return
    nodes = settings.train.nodes
    if dotted_name((*TRAIN, "num_nodes")) in settings.given and nodes > question.nodes:
        yield f"num_nodes is {nodes}, but this machine is one node."
    if "data_dir" in settings.given:
        yield "Runs of our runtime read a text made at run time; data_dir is not read."


def _refusal_note(checks: Sequence[Callable[[], object]]) -> tuple[str, ...]:
    """Reason why a run would end at once, for a dry run, which needs neither data nor packages."""
    try:
        for check in checks:
            check()
    except ConfigError as error:
        return (f"A run would be refused here: {error}",)
    return ()


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
