"""The model that a search is for, whichever front end asks, and paths in its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import (
    BLOCK,
    ChosenModel,
    Family,
    Grid,
    GridQuestion,
    ModelQuestion,
    NoRule,
    nemo_grid,
    run_name,
)
from autoconf_launch.core import ConfigError, Degrees, KeyPath, RawConfig, dotted_name
from autoconf_launch.launcher.estimates import completed_document
from autoconf_launch.tuning_spaces import grid_rows, is_shipped, predefined_searches

RECIPE: KeyPath = ("model", "config")
"""Section of a recipe of NeMo 2.0; a file of 1.0 has none."""


class GridKind(str, Enum):
    """The source of the candidates that are searched."""

    PLANNER = "planner"
    NEMO = "nemo"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """The candidates that a search may run, and the limits of each run.

    Attributes:
        degrees: sizes to search; the planner chooses open ones.
        limit_runs: 0 for all candidates.
        search_nodes: of each run; 0 for the fewest that the candidates need (BigNLP's way).
        logs: absolute folder of the search.
        gpu: name for the planner; None: by its memory.
    """

    degrees: Degrees
    grid: GridKind
    limit_runs: int
    search_nodes: int
    max_steps: int
    max_minutes: float
    logs: Path
    gpu: str | None = None
    usd_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        least, most = self.degrees.least_product, self.degrees.most_product
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"min_model_parallel_size is {least}, but must be at most max_model_parallel_size "
                f"= {most}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """The model that a search is for.

    Attributes:
        base: its configuration, with our own section on family and vocabulary.
        method: how its activations are checkpointed; None if they are not.
        tokens_b: of the whole training, in billions.
        nodes, gpus_per_node: machines of a training; a search may use fewer.
        notes: models that no table covers, and recommended values.
    """

    scope: SearchScope
    model: ChosenModel
    base: RawConfig
    tokens_b: float
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
    def sequence(self) -> int:
        return self.model.asked.sequence

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


def grid_question(question: SearchQuestion) -> GridQuestion:
    """The model as the rules of NVIDIA's grids see it."""
    asked = question.model.asked
    return GridQuestion(
        family=question.family,
        size_b=question.size_b,
        layers=question.model.shape.layers,
        sequence=asked.sequence,
        gpu_memory_gb=asked.gpu_memory_gb,
        is_shipped=is_shipped(question.family, question.size_b, asked.sequence),
    )


def nemo_grid_of(question: SearchQuestion) -> Grid | NoRule | None:
    """NVIDIA's grid, of the generation that has searches of the family, else of NeMo 2.0.

    Returns:
        None for the planner's grid.
    """
    if question.scope.grid is not GridKind.NEMO:
        return None
    is_old = any(one.family == question.family.predefined for one in predefined_searches())
    rows = grid_rows(1 if is_old else 2)
    return nemo_grid(rows, grid_question(question), question.scope.degrees)


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
    layers = question.scope.degrees.recompute_layers
    if layers is None or question.method == BLOCK:
        return ""
    return (
        f"act_ckpt_layers={list(layers)} is not searched: NVIDIA's grid takes it where the base "
        f"configuration's activations_checkpoint_method is {BLOCK}, and here it is "
        f"{question.method or 'null'}; grid=planner searches it."
    )
