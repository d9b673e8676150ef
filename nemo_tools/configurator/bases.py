"""A recipe's model as the base configuration of a training, in either layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import (
    BaseBatch,
    ChosenModel,
    Rules,
    RunPlan,
    Shape,
    base_batch,
    base_config,
    counted_model,
    nemo1_document,
    recipe_document,
    row_near,
)
from autoconf_launch.core import KeyPath, RawConfig
from autoconf_launch.tuning_spaces import base_template, tables

from ..search import SearchQuestion, batch_path, section, with_data, with_facts
from .model_facts import GENERATION, ModelFacts, is_nemo1, overlaid
from .recipe import RECIPE_SECTIONS

_OF_NO_CONFIG = frozenset({"class", "family", "model_size_in_b", "name"})
_STEPS: tuple[KeyPath, KeyPath] = (
    ("trainer", "max_steps"),
    ("optim", "lr_scheduler", "max_steps"),
)
_RATES: tuple[KeyPath, KeyPath] = (("optim", "config", "lr"), ("model", "optim", "lr"))
_CLIPS: tuple[KeyPath, KeyPath] = (
    ("trainer", "gradient_clip_val"),
    ("optim", "config", "clip_grad"),
)
_SEQUENCE: KeyPath = ("model", "config", "seq_length")
_PRECISION: KeyPath = ("trainer", "precision")
_BF16: KeyPath = ("optim", "config", "bf16")
_SCHEDULE: KeyPath = ("optim", "lr_scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTraining:
    """A training as recipe and arguments state it.

    Attributes:
        document: the recipe as data.
        is_model_calculated: whether the model's shape takes the place of the recipe's.
        data: paths as they were given, weights between them; None without any.
    """

    document: RawConfig
    is_model_calculated: bool
    data: Any
    tokenizer: str | None

    @property
    def max_steps(self) -> int | None:
        """Steps of the trainer, else of the schedule; None if neither has an end."""
        found = (self.document.get(path) for path in _STEPS)
        return next((n for n in found if _is_number(n) and isinstance(n, int) and n > 0), None)

    @property
    def learning_rate(self) -> float | None:
        """The highest of the schedule."""
        found = (self.document.get(path) for path in _RATES)
        return next((float(rate) for rate in found if _is_number(rate) and rate > 0), None)


def chosen_model(facts: ModelFacts, given: StatedTraining, batch: BaseBatch) -> ChosenModel:
    """The model with its counts, and a learning rate by the tables if it has none."""
    asked = replace(facts.asked, batch=batch.global_batch)
    return counted_model(asked, _with_rate(facts, given), batch, facts.form)


def table_batch(facts: ModelFacts) -> BaseBatch:
    """Batch of NeMo 2.0 and first degrees of the tables, or ours with a note."""
    known = tables(GENERATION)
    return base_batch(known.batches, facts.asked, known.grids)


def base_of(given: StatedTraining, model: ChosenModel, plan: RunPlan) -> RawConfig:
    """The recipe's own document if it is a whole one, else ours with the recipe's values."""
    own = given.document
    if not is_nemo1(own):
        own = _as_recipe(own, recipe_document(base_config(model, plan)))
        own = own.with_value(("data", "seq_length"), model.asked.sequence)
    own = own.with_values((*_shape_edits(own, given, model), *_machine_edits(own, model, plan)))
    return with_facts(with_data(own, given.data, given.tokenizer), model.asked, plan.tokens_b)


def recipe_edits(
    given: StatedTraining, model: ChosenModel, plan: RunPlan
) -> Iterator[tuple[KeyPath, Any]]:
    """Settings of a NeMo 2.0 recipe before its layout, as in its document."""
    own = RawConfig({"model": {"config": {}}})
    yield from _shape_edits(own, given, model)
    yield from _machine_edits(own, model, plan)
    yield ("data", "seq_length"), model.asked.sequence
    if _SEQUENCE in given.document:
        yield _SEQUENCE, model.asked.sequence
    if given.data is not None:
        yield ("data", "paths"), given.data
    if given.tokenizer is not None:
        yield ("data", "tokenizer_path"), given.tokenizer


def _machine_edits(
    own: RawConfig, model: ChosenModel, plan: RunPlan
) -> Iterator[tuple[KeyPath, Any]]:
    yield batch_path(own), model.batch.global_batch
    yield ("trainer", "num_nodes"), plan.nodes
    yield ("trainer", "devices"), plan.gpus_per_node


def bound_edits(
    question: SearchQuestion, name: str, folder: Path, *, is_finetune: bool
) -> Iterator[tuple[KeyPath, Any]]:
    """Settings that bound a run and place its logs.

    The start and the trained parts of a fine-tuning (``resume``, ``peft``) stay as they are; a
    pretraining resumes nothing.
    """
    document, steps = question.base, question.scope.max_steps
    days, minutes = divmod(round(question.scope.max_minutes), 24 * 60)
    hours, minutes = divmod(minutes, 60)
    yield ("trainer", "max_steps"), steps
    yield ("trainer", "max_time"), f"{days:02d}:{hours:02d}:{minutes:02d}:00"
    yield ("trainer", "log_every_n_steps"), 1
    if is_nemo1(document):
        yield ("trainer", "val_check_interval"), steps
        yield ("run", "name"), name
        yield ("run", "results_dir"), str(folder)
        yield ("exp_manager", "create_checkpoint_callback"), False
        return
    yield ("log", "name"), name
    yield ("log", "log_dir"), str(folder)
    yield ("log", "ckpt", "save_last"), False
    if not is_finetune:
        yield ("resume",), None


def base_for_ranks(base: RawConfig, model: ChosenModel, plan: RunPlan) -> RawConfig:
    """The base; of a family of NeMo 1.0 in that layout, in which ranks here read it."""
    family = model.asked.family
    if is_nemo1(base) or not family.has_nemo1_layout:
        return base
    document = nemo1_document(base_template(family.name), base_config(model, plan))
    return with_facts(document, model.asked, plan.tokens_b)


def _with_rate(facts: ModelFacts, given: StatedTraining) -> Shape:
    rate = given.learning_rate or facts.shape.learning_rate
    if not rate:
        rows = tables(GENERATION).shapes[facts.asked.family.rules or Rules.GPT]
        rate = row_near(rows, facts.asked.size_b).learning_rate
    return replace(facts.shape, learning_rate=rate)


def _as_recipe(document: RawConfig, ours: RawConfig) -> RawConfig:
    """Ours with all that a document has; duplicate settings follow the given one."""
    given = _sections(document)
    if not _is_number(steps := given.get(_STEPS[0])) or steps < 1:
        given = given.without(_STEPS[0])
    own = overlaid(ours, given)
    return own.with_values(_followers(given))


def _followers(given: RawConfig) -> Iterator[tuple[KeyPath, Any]]:
    """Values of ours that must agree with a value of the recipe."""
    for path, other in (_CLIPS, _CLIPS[::-1]):
        if given.get(path) is not None and given.get(other) is None:
            yield other, given.get(path)
    precision = given.get(_PRECISION)
    if precision is not None and _BF16 not in given:
        yield _BF16, str(precision).startswith("bf16")
    kind = given.get((*_SCHEDULE, "class"))
    if kind is not None and (*_SCHEDULE, "name") not in given:
        yield (*_SCHEDULE, "name"), str(kind).removesuffix("Scheduler")


def _shape_edits(
    document: RawConfig, given: StatedTraining, model: ChosenModel
) -> Iterator[tuple[KeyPath, Any]]:
    """A calculated shape in place of the recipe's, as NeMo 2.0 writes it."""
    if not given.is_model_calculated:
        return
    shape, where = model.shape, section(document, model.asked.family)
    numbers = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_query_groups": model.architecture.kv_heads,
        "ffn_hidden_size": shape.ffn,
        "kv_channels": shape.kv,
    }
    stacks = (where, ("model", "decoder")) if where == ("model", "encoder") else (where,)
    for stack in stacks:
        for name, value in numbers.items():
            yield (*stack, name), value
    if ("model", "config", "encoder_num_layers") in document:
        yield ("model", "config", "encoder_num_layers"), shape.layers


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sections(given: RawConfig) -> RawConfig:
    document: Mapping[str, Any] = given.to_dict()
    kept = {name: value for name, value in document.items() if name in RECIPE_SECTIONS}
    model = document.get("model")
    if isinstance(model, Mapping):
        config = {name: value for name, value in model.items() if name not in _OF_NO_CONFIG}
        kind = {"class": model["class"]} if "class" in model else {}
        kept["model"] = model if "config" in model else {"config": config, **kind}
    return RawConfig(kept)
