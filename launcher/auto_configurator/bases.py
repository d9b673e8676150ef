"""A recipe's model in the form that base configurations are made of, and its batch. Not: files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.cost.parameter_count import active_parameters, parameters
from autoconf_launch.autotuner.recommend.architectures import architecture
from autoconf_launch.autotuner.recommend.batch_size import BaseBatch, BatchQuestion, base_batch
from autoconf_launch.autotuner.recommend.chosen_model import ChosenModel, ModelQuestion
from autoconf_launch.autotuner.recommend.families import Rules
from autoconf_launch.autotuner.recommend.nemo_grid import GridQuestion, nemo_grid
from autoconf_launch.autotuner.recommend.nemo_parameters import nemo_parameters_b
from autoconf_launch.autotuner.recommend.shapes import Shape
from autoconf_launch.core import Path
from autoconf_launch.tuning_spaces.recommend_tables import grid_rows, tables

from .model_facts import GENERATION, ModelFacts


def chosen_model(facts: ModelFacts, batch: BaseBatch, gpu_memory_gb: float) -> ChosenModel:
    """The model with its counts, and a learning rate by the tables where it has none."""
    shape, rules = _with_rate(facts), facts.family.rules
    model = architecture(facts.family, shape, facts.vocabulary, facts.sequence)
    counted = nemo_parameters_b(rules, shape, facts.vocabulary, facts.sequence) if rules else None
    return ChosenModel(
        asked=ModelQuestion(
            family=facts.family,
            size_b=facts.size_b,
            vocabulary=facts.vocabulary,
            sequence=facts.sequence,
            gpu_memory_gb=gpu_memory_gb,
            batch=batch.global_batch,
        ),
        shape=shape,
        architecture=model,
        batch=batch,
        nemo_count_b=counted,
        exact_count=parameters(model),
        active_count=active_parameters(model),
        notes=(),
    )


def model_notes(facts: ModelFacts, tokens_b: float) -> Iterator[tuple[Path, Any]]:
    """Our own section of a base configuration, which ranks here read."""
    yield ("autoconf", "family"), facts.family.name
    yield ("autoconf", "model_size_in_b"), facts.size_b
    yield ("autoconf", "vocab_size"), facts.vocabulary
    yield ("autoconf", "num_tokens_in_b"), tokens_b


def table_batch(facts: ModelFacts, gpu_memory_gb: float) -> BaseBatch:
    """Batch and first degrees of the tables for base configurations."""
    return base_batch(
        tables(GENERATION).batches,
        BatchQuestion(
            family=facts.family,
            size_b=facts.size_b,
            sequence=facts.sequence,
            gpu_memory_gb=gpu_memory_gb,
        ),
    )


def recommended_batch(
    facts: ModelFacts, table: BaseBatch, gpu_memory_gb: float
) -> tuple[BaseBatch, str]:
    """NeMo 2.0's batch where a rule covers the model, else the table's; and a note on it."""
    question = GridQuestion(
        family=facts.family,
        size_b=facts.size_b,
        layers=facts.shape.layers,
        sequence=facts.sequence,
        gpu_memory_gb=gpu_memory_gb,
    )
    grid = nemo_grid(grid_rows(GENERATION), question)
    if grid is not None and not grid.note and grid.global_batch is not None:
        batch = replace(table, global_batch=grid.global_batch, note="")
        why = f"No global batch was given: {batch.global_batch}, as NeMo 2.0 has for this size."
        return batch, why
    why = table.note or "It is that of NVIDIA's base configurations."
    return table, f"No global batch was given: {table.global_batch}. {why}"


def _with_rate(facts: ModelFacts) -> Shape:
    if facts.shape.learning_rate:
        return facts.shape
    rows = tables(GENERATION).shapes[facts.family.rules or Rules.GPT]
    row = next((row for row in rows if row.covers(facts.size_b)), rows[-1])
    return replace(facts.shape, learning_rate=row.learning_rate)
