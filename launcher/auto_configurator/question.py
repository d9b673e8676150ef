"""A training of ``AutoConfigurator`` as the question that a search answers. Not: its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.autotuner.recommend.base_config import base_config, run_name
from autoconf_launch.autotuner.recommend.nemo1_layout import nemo1_document
from autoconf_launch.autotuner.recommend.nemo_grid import GridOverrides
from autoconf_launch.core import RawConfig
from autoconf_launch.tuning_spaces.recommend_tables import base_template

from ..model_search.described import DescribedModel
from ..model_search.question import SearchQuestion
from ..model_search.settings import (
    ClusterKind,
    ClusterSettings,
    GridKind,
    PathSettings,
    SearchSettings,
    TrainSettings,
    WandbSettings,
)
from .bases import chosen_model, model_notes
from .layouts import is_nemo1
from .training import Training

_CHOICE = "recipe"
_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """How far a search goes.

    Attributes:
        logs: absolute.
        limit_runs: 0 for all candidates.
    """

    grid: GridKind
    lists: GridOverrides
    logs: Path
    limit_runs: int
    max_steps: int
    max_minutes: float


def question_of(training: Training, bounds: SearchBounds) -> SearchQuestion:
    """The search of ``launcher/model_search`` that finds the training's fastest candidate."""
    facts, plan = training.facts, training.plan
    chosen = chosen_model(facts, training.batch, training.gpu_memory_gb)
    return SearchQuestion(
        settings=_settings(training, bounds),
        family=facts.family,
        size_b=facts.size_b,
        name=run_name(facts.family.name, facts.size_b),
        base=_base_for_ranks(training),
        model=DescribedModel(
            layers=facts.shape.layers,
            hidden=facts.shape.hidden,
            heads=facts.shape.heads,
            ffn=facts.shape.ffn,
            global_batch=training.global_batch,
            method=None,
        ),
        architecture=chosen.architecture,
        nodes=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        notes=training.notes,
    )


def _settings(training: Training, bounds: SearchBounds) -> SearchSettings:
    return SearchSettings(
        choice=f"{training.facts.family.name}/{_CHOICE}",
        train=_train(training, bounds),
        cluster=ClusterSettings(
            kind=ClusterKind.LOCAL, usd_per_gpu_hour=training.usd_per_gpu_hour
        ),
        paths=PathSettings(
            tool=None, results=str(bounds.logs), data=None, container=None, mounts=()
        ),
        wandb=WandbSettings(enabled=False, key_file=None, project=None),
        grid=bounds.grid,
        runs_training=True,
        runs_inference=False,
        given=frozenset(),
        notes=(),
    )


def _train(training: Training, bounds: SearchBounds) -> TrainSettings:
    facts, plan = training.facts, training.plan
    return TrainSettings(
        family=facts.family.name,
        size_b=facts.size_b,
        nodes=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        gpu_memory_gb=training.gpu_memory_gb,
        max_days=plan.days,
        limit_runs=bounds.limit_runs,
        top_n=_TOP,
        max_steps=bounds.max_steps,
        max_minutes=bounds.max_minutes,
        tflops_per_gpu=training.tflops_per_gpu,
        tokens_b=plan.tokens_b,
        vocabulary=facts.vocabulary,
        sequence=facts.sequence,
        global_batch=training.global_batch,
        custom_config=None,
        logs=bounds.logs,
        search_nodes=plan.nodes,
        grid=bounds.lists,
        recompute_layers=None,
    )


def _base_for_ranks(training: Training) -> RawConfig:
    """The base; of a family of NeMo 1.0 in that layout, in which ranks here read it."""
    facts = training.facts
    if is_nemo1(training.base) or not facts.family.has_nemo1_layout:
        return training.base
    chosen = chosen_model(facts, training.batch, training.gpu_memory_gb)
    document = nemo1_document(base_template(facts.family.name), base_config(chosen, training.plan))
    for path, value in model_notes(facts, training.plan.tokens_b):
        document = document.with_value(path, value)
    return document
