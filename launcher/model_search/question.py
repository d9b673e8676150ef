"""From settings to the model, its base configuration and the nodes. Not: candidates.

The size is given or recommended; the configuration is NeMo's table, ours, or the user's file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.recommend.base_config import RunPlan, run_name
from autoconf_launch.autotuner.recommend.chosen_model import (
    ChosenModel,
    ModelQuestion,
    choose_model,
)
from autoconf_launch.autotuner.recommend.families import Family, family_named
from autoconf_launch.autotuner.recommend.model_size import Budget, recommended_size_b
from autoconf_launch.autotuner.recommend.training_time import exact_training_days
from autoconf_launch.core import Architecture, ConfigError, RawConfig, dotted
from autoconf_launch.tuning_spaces.recommend_tables import generation_of, tables
from autoconf_launch.tuning_spaces.search_configs import shipped_base_config

from ..planner.base_config_file import base_document
from ..planner.custom_model import custom_model
from .described import (
    DescribedModel,
    architecture_of,
    batch_path,
    described,
    with_facts,
    with_length,
)
from .known_keys import TRAIN
from .settings import ClusterKind, SearchSettings, TrainSettings

_INDEX_FOLDER = "data_index_files"
_LENGTH = dotted((*TRAIN, "seq_length"))
_MADE_HERE = ("autoconf", "parameters")
"""Stands in a base configuration of ours, not in a user's whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """The model that a search is for.

    Attributes:
        name: of the run, such as ``gpt3_5b``.
        base: its configuration, with our own section on family and vocabulary.
        nodes, gpus_per_node: those of a training; a search may use fewer.
        notes: what no table covers, and what was recommended.
    """

    settings: SearchSettings
    family: Family
    size_b: float
    name: str
    base: RawConfig
    model: DescribedModel
    architecture: Architecture
    nodes: int
    gpus_per_node: int
    notes: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """GPUs of a training."""
        return self.nodes * self.gpus_per_node

    @property
    def file_name(self) -> str:
        """File name of the base configuration."""
        return f"base_cfg_{self.size_b:.10g}b.yaml"


def question_of(settings: SearchSettings, nodes: int, gpus_per_node: int) -> SearchQuestion:
    """Recommend a size where none is given, and work the base configuration out.

    Raises:
        ConfigError: the size is above what the family allows, the budget gives none, or the
            user's file cannot be read.
    """
    train = settings.train
    family = family_named(train.family)
    budget = Budget(
        gpus=nodes * gpus_per_node, tflops_per_gpu=train.tflops_per_gpu, tokens_b=train.tokens_b
    )
    size_b, notes = _size(family, train, budget)
    chosen = _chosen(settings, family, size_b)
    days = train.max_days or exact_training_days(family.name, size_b, budget)
    base = _base(settings, chosen, _plan(settings, days, nodes, gpus_per_node))
    is_custom = train.custom_config is not None
    train = replace(train, sequence=chosen.asked.sequence)
    return SearchQuestion(
        settings=replace(settings, train=train),
        family=family,
        size_b=size_b,
        name=run_name(family.name, size_b),
        base=base,
        model=described(base, family),
        architecture=(
            architecture_of(base, family, train.vocabulary, train.sequence)
            if is_custom
            else chosen.architecture
        ),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        notes=(*notes, *_length(settings, chosen), *(chosen.notes if _MADE_HERE in base else ())),
    )


def _plan(settings: SearchSettings, days: float, nodes: int, gpus_per_node: int) -> RunPlan:
    is_bcp = settings.cluster.kind is ClusterKind.BCP
    return RunPlan(
        days=days,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tokens_b=settings.train.tokens_b,
        wandb_project=settings.wandb.project if settings.wandb.enabled else None,
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


def _chosen(settings: SearchSettings, family: Family, size_b: float) -> ChosenModel:
    """The tables' model, or the one of the user's file; what the command line gives wins."""
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
        found = replace(found, asked=replace(found.asked, sequence=train.sequence))
    if train.global_batch is None:
        return found
    return replace(found, batch=replace(found.batch, global_batch=train.global_batch))


def _length(settings: SearchSettings, chosen: ChosenModel) -> tuple[str, ...]:
    """Say where a model's file has another sequence length than the search's settings."""
    asked, found = settings.train.sequence, chosen.asked.sequence
    if asked == found:
        return ()
    return (
        f"custom_config {settings.train.custom_config} has samples of {found} tokens; seq_length "
        f"= {asked} does not count.",
    )


def _custom_file(train: TrainSettings) -> Path | None:
    """The user's file; one of NVIDIA's own that is not there is the one that we ship."""
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
    """The user's file or ours, with the batch that was asked for."""
    train = settings.train
    base = base_document(chosen, plan, _custom_file(train))
    if train.global_batch is not None:
        base = base.with_value(batch_path(base), train.global_batch)
    if _LENGTH in settings.given:
        base = with_length(base, train.sequence)
    asked = replace(chosen.asked, vocabulary=train.vocabulary)
    return with_facts(base, asked, train.tokens_b)
