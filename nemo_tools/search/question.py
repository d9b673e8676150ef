"""From settings to the model, its base configuration and the nodes.

The size is given or recommended; the configuration is NeMo's table, ours, or the user's file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import (
    BLOCK,
    Budget,
    ChosenModel,
    Family,
    Grid,
    GridQuestion,
    ModelQuestion,
    NoRule,
    RunPlan,
    choose_model,
    exact_training_days,
    family_named,
    nemo_grid,
    recommended_size_b,
    run_name,
)
from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name
from autoconf_launch.launcher.estimates import base_document, completed_document, custom_model
from autoconf_launch.tuning_spaces import (
    generation_of,
    grid_rows,
    is_shipped,
    predefined_searches,
    shipped_base_config,
    tables,
)

from .settings import TRAIN, ClusterKind, GridKind, SearchSettings, TrainSettings

RECIPE: KeyPath = ("model", "config")
"""Section of a recipe of NeMo 2.0; a file of 1.0 has none."""
_LENGTHS: tuple[KeyPath, ...] = (
    ("data", "seq_length"),
    (*RECIPE, "seq_length"),
    ("model", "data", "seq_length"),
    ("model", "encoder_seq_length"),
    ("model", "seq_length"),
    ("model", "max_position_embeddings"),
)


def decoder_tokens(base: RawConfig, sequence: int) -> int:
    """Tokens of a sample that T5's decoder writes.

    Without a number, a quarter of its input, as in runs on this machine.
    """
    paths = (("model", "data", "seq_length_dec"), ("data", "seq_length_dec"))
    found = next((path for path in paths if base.get(path) is not None), None)
    return max(1, sequence // 4) if found is None else _whole(base, found)


def section(base: RawConfig, family: Family) -> KeyPath:
    """Path of the model's shape in the base configuration."""
    if RECIPE in base:
        return RECIPE
    return ("model", "encoder") if family.is_encoder_decoder else ("model",)


def batch_path(base: RawConfig) -> KeyPath:
    """Path of the global batch in the base configuration."""
    return ("data", "global_batch_size") if RECIPE in base else ("model", "global_batch_size")


def data_path(base: RawConfig) -> KeyPath:
    """Path of the training's data in the base configuration."""
    return ("data", "paths") if RECIPE in base else ("model", "data", "data_prefix")


def with_data(document: RawConfig, data: Any, tokenizer: str | None) -> RawConfig:
    """A configuration with its data and tokenizer, if there are any."""
    where = ("data", "tokenizer_path") if RECIPE in document else ("model", "tokenizer", "model")
    given = ((data_path(document), data), (where, tokenizer))
    return document.with_values((path, value) for path, value in given if value is not None)


def with_facts(base: RawConfig, asked: ModelQuestion, tokens_b: float) -> RawConfig:
    """The document with our section: the parts of NeMo's file that a rank needs."""
    facts = (
        ("family", asked.family.name),
        ("model_size_in_b", asked.size_b),
        ("vocab_size", asked.vocabulary),
        ("num_tokens_in_b", tokens_b),
    )
    return base.with_values((("autoconf", name), value) for name, value in facts)


def _whole(base: RawConfig, path: KeyPath) -> int:
    value = base.get(path)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{dotted_name(path)} of the base configuration is {value!r}, but must be a whole "
            "number of at least 1."
        )
    return value


_INDEX_FOLDER = "data_index_files"
_LENGTH = dotted_name((*TRAIN, "seq_length"))
_MADE_HERE = ("autoconf", "parameters")
"""Stands in a base configuration of ours, not in a user's whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """The model that a search is for.

    Attributes:
        base: its configuration, with our own section on family and vocabulary.
        method: how its activations are checkpointed; None if they are not.
        nodes, gpus_per_node: machines of a training; a search may use fewer.
        notes: models that no table covers, and recommended values.
    """

    settings: SearchSettings
    model: ChosenModel
    base: RawConfig
    nodes: int
    gpus_per_node: int
    notes: tuple[str, ...]
    method: str | None = None

    @property
    def family(self) -> Family:
        return self.model.asked.family

    @property
    def size_b(self) -> float:
        return self.model.asked.size_b

    @property
    def name(self) -> str:
        return run_name(self.family.name, self.size_b)

    @property
    def global_batch(self) -> int:
        return self.model.batch.global_batch

    @property
    def completed_base(self) -> RawConfig:
        """The base with all that our own runtime reads of it."""
        return completed_document(self.base, self.model)

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def file_name(self) -> str:
        return f"base_cfg_{self.size_b:.10g}b.yaml"


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
    days = train.max_days or exact_training_days(family.name, size_b, budget)
    base = _base(settings, chosen, _plan(settings, days, nodes, gpus_per_node))
    sequence = chosen.asked.sequence
    length = (
        ()
        if sequence == train.sequence
        else (
            f"custom_config {train.custom_config} has samples of {sequence} tokens; seq_length = "
            f"{train.sequence} is ignored.",
        )
    )
    train = replace(train, sequence=sequence)
    return SearchQuestion(
        settings=replace(settings, train=train),
        model=chosen,
        base=base,
        method=base.get((*section(base, family), "activations_checkpoint_method")),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        notes=(*notes, *length, *(chosen.notes if _MADE_HERE in base else ())),
    )


def _plan(settings: SearchSettings, days: float, nodes: int, gpus_per_node: int) -> RunPlan:
    is_bcp = settings.cluster.kind is ClusterKind.BCP
    return RunPlan(
        days=days,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tokens_b=settings.train.tokens_b,
        wandb_project=settings.tracking.project,
        index_folder=f"{settings.paths.results}/{_INDEX_FOLDER}" if is_bcp else None,
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


def grid_question(question: SearchQuestion) -> GridQuestion:
    """The model as the rules of NVIDIA's grids see it."""
    train = question.settings.train
    return GridQuestion(
        family=question.family,
        size_b=question.size_b,
        layers=question.model.shape.layers,
        sequence=train.sequence,
        gpu_memory_gb=train.gpu_memory_gb,
        is_shipped=is_shipped(question.family, question.size_b, train.sequence),
    )


def nemo_grid_of(question: SearchQuestion) -> Grid | NoRule | None:
    """NVIDIA's grid, of the generation that has searches of the family, else of NeMo 2.0.

    Returns:
        None for the planner's grid.
    """
    if question.settings.grid is not GridKind.NEMO:
        return None
    is_old = any(one.family == question.family.predefined for one in predefined_searches())
    rows = grid_rows(1 if is_old else 2)
    return nemo_grid(rows, grid_question(question), question.settings.train.degrees)


def whose_grid(question: SearchQuestion) -> GridKind:
    """The grid that is searched: the planner's if NVIDIA has no rule."""
    has_rule = isinstance(nemo_grid_of(question), Grid)
    return GridKind.NEMO if has_rule else GridKind.PLANNER


def notes_on_rules(question: SearchQuestion) -> tuple[str, ...]:
    """Notes on NVIDIA's grid: a missing rule, an assumption, layers that are not used."""
    grid = nemo_grid_of(question)
    if isinstance(grid, NoRule):
        return (grid.sentence,)
    if grid is None:
        return ()
    return tuple(note for note in (grid.note, _unused_layers(question)) if note)


def _unused_layers(question: SearchQuestion) -> str:
    """NVIDIA's grids recompute nothing if the base configuration does not."""
    layers = question.settings.train.degrees.recompute_layers
    if layers is None or question.method == BLOCK:
        return ""
    return (
        f"act_ckpt_layers={list(layers)} is not searched: NVIDIA's grid takes it where the base "
        f"configuration's activations_checkpoint_method is {BLOCK}, and here it is "
        f"{question.method or 'null'}; grid=planner searches it."
    )
