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
from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.autotuner.recommend.model_size import Budget, model_size_b
from autoconf_launch.autotuner.recommend.training_time import exact_training_days
from autoconf_launch.core import Architecture, ConfigError, RawConfig
from autoconf_launch.tuning_spaces.recommend_tables import generation_of, tables
from autoconf_launch.tuning_spaces.search_configs import shipped_base_config

from ..planner.base_config_file import base_document
from .described import DescribedModel, architecture_of, batch_path, described
from .settings import ClusterKind, SearchSettings, TrainSettings

_INDEX_FOLDER = "data_index_files"


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
        """Of a training."""
        return self.nodes * self.gpus_per_node

    @property
    def file_name(self) -> str:
        """Of its base configuration."""
        return f"base_cfg_{self.size_b:.10g}b.yaml"


def question_of(settings: SearchSettings, nodes: int, gpus_per_node: int) -> SearchQuestion:
    """Recommend a size where none is given, and work the base configuration out.

    Raises:
        ConfigError: the size is above what the family allows, the budget gives none, or the
            user's file cannot be read.
    """
    train = settings.train
    family = Family(train.family)
    budget = Budget(
        gpus=nodes * gpus_per_node, tflops_per_gpu=train.tflops_per_gpu, tokens_b=train.tokens_b
    )
    size_b, notes = _size(family, train, budget)
    custom = _custom_file(train)
    chosen = _chosen(family, train, size_b)
    plan = RunPlan(
        days=train.max_days or exact_training_days(family.name, size_b, budget),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tokens_b=train.tokens_b,
        wandb_project=settings.wandb.project if settings.wandb.enabled else None,
        index_folder=_index_folder(settings),
    )
    base = _with_facts(base_document(chosen, plan, custom), family, train, size_b)
    is_whole = custom is not None and ("autoconf", "parameters") not in base
    return SearchQuestion(
        settings=settings,
        family=family,
        size_b=size_b,
        name=run_name(family.name, size_b),
        base=base,
        model=described(base, family),
        architecture=_architecture(base, family, train, chosen, is_custom=custom is not None),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        notes=(*notes, *(() if is_whole else chosen.notes)),
    )


def _size(family: Family, train: TrainSettings, budget: Budget) -> tuple[float, tuple[str, ...]]:
    if train.size_b is not None:
        return train.size_b, ()
    if train.max_days is None:
        raise ConfigError(
            "search_config.train_settings.model_size_in_b is not given, and no max_training_days "
            "to recommend one for; give one of them."
        )
    size_b = model_size_b(family.name, budget, train.max_days)
    if size_b <= 0:
        raise ConfigError(
            f"In {train.max_days:g} days {budget.gpus} GPUs of {budget.tflops_per_gpu:g} TFLOP/s "
            f"train less than 0.01 B parameters on {budget.tokens_b:g} B tokens; give more days "
            "or fewer tokens."
        )
    return size_b, (
        f"You can train a {size_b:g} B model in {train.max_days:g} days on {budget.gpus} GPUs, "
        f"if each achieves {budget.tflops_per_gpu:g} TFLOP/s (max_training_days, tflops_per_gpu).",
    )


def _chosen(family: Family, train: TrainSettings, size_b: float) -> ChosenModel:
    asked = ModelQuestion(
        family=family,
        size_b=size_b,
        vocabulary=train.vocabulary,
        sequence=train.sequence,
        gpu_memory_gb=train.gpu_memory_gb,
        batch=train.global_batch,
    )
    return choose_model(tables(generation_of(family)), asked)


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


def _index_folder(settings: SearchSettings) -> str | None:
    is_bcp = settings.cluster.kind is ClusterKind.BCP
    return f"{settings.paths.results}/{_INDEX_FOLDER}" if is_bcp else None


def _with_facts(base: RawConfig, family: Family, train: TrainSettings, size_b: float) -> RawConfig:
    """The batch that was asked for, and what a rank must know of a whole file of NeMo's."""
    if train.global_batch is not None:
        base = base.with_value(batch_path(base), train.global_batch)
    facts = (
        ("family", family.name),
        ("model_size_in_b", size_b),
        ("vocab_size", train.vocabulary),
        ("num_tokens_in_b", train.tokens_b),
    )
    for name, value in facts:
        base = base.with_value(("autoconf", name), value)
    return base


def _architecture(
    base: RawConfig,
    family: Family,
    train: TrainSettings,
    chosen: ChosenModel,
    *,
    is_custom: bool,
) -> Architecture:
    if not is_custom:
        return chosen.architecture
    return architecture_of(base, family, train.vocabulary, train.sequence)


def on_nodes(question: SearchQuestion, nodes: int) -> SearchQuestion:
    """The same model, searched on other nodes."""
    return replace(question, nodes=nodes)
