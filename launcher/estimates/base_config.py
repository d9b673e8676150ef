"""``--model`` and flags of shapes to an Architecture.

Text and predictions follow the file: its shape, sequence, batch and kind win over the tables'.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from autoconf_launch.autotuner.sizing import (
    BaseConfig,
    ChosenModel,
    Pretraining,
    RunPlan,
    TrainedModel,
    base_config,
    counted_model,
    custom_document,
    nemo1_document,
    pretraining,
    recipe_document,
)
from autoconf_launch.core import (
    ConfigError,
    RawConfig,
    dotted_name,
)
from autoconf_launch.core import KeyPath as Key
from autoconf_launch.tuning_spaces import (
    base_template,
)

from ..config_file import read_config

_NEAR = 0.8
_OWN = "autoconf"
_ANY_PLAN = RunPlan(days=1.0, nodes=1, gpus_per_node=1, tokens_b=1e9)
_SEQUENCES: tuple[Key, ...] = (
    ("data", "seq_length"),
    ("model", "config", "seq_length"),
    ("model", "data", "seq_length"),
    ("model", "encoder_seq_length"),
    ("model", "seq_length"),
)
_LINK = "${"
_STD = 0.02
"""Initial deviation, unused here: a reader of whole files requires one."""


def base_document(model: ChosenModel, plan: RunPlan, custom: Path | None) -> RawConfig:
    """The base configuration with a user's file laid over it.

    A file that describes a whole model stays as it is; only run and trainer are set, as
    NVIDIA's tool does; the keys of any other file win one by one. Steps follow from the model,
    which ``custom_model`` makes as the file has it.

    Raises:
        ConfigError: the file cannot be read, or a key in it is nearly a known key.
    """
    base = base_config(model, plan)
    if custom is None:
        return _own_document(base)
    given = read_config(custom)
    if is_whole_model(given):
        return _with_family(custom_document(given, base), base)
    ours = _own_document(base)
    if near := next(_near_misses(given, ours), None):
        raise ConfigError(f"{custom}: {near}")
    return ours.with_values(given.leaves())


def _with_family(document: RawConfig, base: BaseConfig) -> RawConfig:
    """Add the model's family, which an export must know."""
    family = base.model.asked.family.name
    return document.with_value((_OWN, "family"), document.get((_OWN, "family"), family))


def is_whole_model(given: RawConfig) -> bool:
    """True if a user's file describes a whole model of NeMo 1.0."""
    return ("model", "num_layers") in given and ("model", "hidden_size") in given


def base_config_text(document: RawConfig) -> str:
    """A document as YAML that a safe loader reads."""
    return yaml.safe_dump(document.to_dict(), sort_keys=False, width=99)


def _own_document(base: BaseConfig) -> RawConfig:
    asked = base.model.asked
    document = (
        nemo1_document(base_template(asked.family.name), base)
        if asked.family.has_nemo1_layout
        else recipe_document(base)
    )
    by_nemo = base.model.nemo_count_b
    facts: dict[str, Any] = {
        "family": asked.family.name,
        "model_size_in_b": asked.size_b,
        "parameters_by_formula_in_b": None if by_nemo is None else round(by_nemo, 6),
        "parameters": base.model.exact_count,
        "vocab_size": asked.vocabulary,
        "num_tokens_in_b": base.plan.tokens_b,
        "max_training_days": base.plan.days,
    }
    return document.with_value((_OWN,), facts)


def _near_misses(given: RawConfig, known: RawConfig) -> Iterator[str]:
    """Keys that no base configuration has but nearly; others are NeMo's own and pass."""
    for path, _ in given.leaves():
        for depth in range(1, len(path) + 1):
            section = known.get(path[: depth - 1]) if depth > 1 else known.to_dict()
            if not isinstance(section, dict) or path[depth - 1] in section:
                continue
            close = difflib.get_close_matches(path[depth - 1], section, n=1, cutoff=_NEAR)
            if close:
                yield f"{dotted_name(path[:depth])} is unknown; did you mean '{close[0]}'?"
            break


def custom_model(model: ChosenModel, custom: Path) -> ChosenModel:
    """A chosen model with a file's values; its notes state these, and the counted weights.

    Raises:
        ConfigError: the file cannot be read, or a number of it is none.
    """
    given = read_config(custom)
    document = completed_document(base_document(model, _ANY_PLAN, custom), model)
    document = _with_sequence(document, given)
    try:
        found = _chosen_model(model, pretraining(document))
    except ConfigError as error:
        raise ConfigError(f"{custom}: {error}") from error
    return replace(found, notes=tuple(_notes(found, custom)))


def completed_document(document: RawConfig, model: ChosenModel) -> RawConfig:
    """A base configuration with the values that a file of NeMo 1.0 leaves to defaults."""
    if not is_whole_model(document):
        return document
    return document.with_values(list(_missing_keys(document, model)))


def _with_sequence(document: RawConfig, given: RawConfig) -> RawConfig:
    values = (given.get(path) for path in _SEQUENCES)
    sequence = next((value for value in values if isinstance(value, int)), None)
    if sequence is None:
        return document
    is_recipe = ("model", "config") in document
    return document.with_value(_SEQUENCES[0] if is_recipe else _SEQUENCES[2], sequence)


def _missing_keys(document: RawConfig, model: ChosenModel) -> Iterator[tuple[Key, Any]]:
    shape, hidden = model.shape, document.get(("model", "hidden_size"))
    usual: tuple[tuple[Key, Any], ...] = (
        (("model", "num_attention_heads"), shape.heads),
        (("model", "ffn_hidden_size"), 4 * hidden if isinstance(hidden, int) else None),
        (("model", "init_method_std"), _STD),
        (("model", "global_batch_size"), model.batch.global_batch),
        (("model", "micro_batch_size"), 1),
        (("model", "data", "seq_length"), model.asked.sequence),
        (("model", "optim", "lr"), shape.learning_rate),
        (("model", "optim", "sched", "min_lr"), shape.learning_rate),
    )
    for path, value in usual:
        found = document.get(path)
        if found is None or str(found).startswith(_LINK):
            yield path, value


def _chosen_model(model: ChosenModel, file: Pretraining) -> ChosenModel:
    trained, batch = file.model, file.split.global_batch
    _require_numbers(trained, batch)
    asked = replace(
        model.asked,
        sequence=trained.sequence,
        vocabulary=trained.vocabulary or model.asked.vocabulary,
    )
    is_changed = batch != model.batch.global_batch
    own = replace(model.batch, global_batch=batch, note="") if is_changed else model.batch
    return counted_model(asked, trained.shape, own, trained.form)


def _require_numbers(trained: TrainedModel, batch: int) -> None:
    numbers = {
        "num_layers": trained.shape.layers,
        "hidden_size": trained.shape.hidden,
        "num_attention_heads": trained.shape.heads,
        "ffn_hidden_size": trained.shape.ffn,
        "seq_length": trained.sequence,
        "global_batch_size": batch,
    }
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}, but must be at least 1.")
    shape, groups = trained.shape, trained.form.groups
    if shape.hidden % shape.heads and shape.kv == shape.hidden // shape.heads:
        raise ConfigError(
            f"hidden_size is {shape.hidden}, which num_attention_heads = {shape.heads} does not "
            "divide; change one of them, or give kv_channels."
        )
    if groups and shape.heads % groups:
        raise ConfigError(
            f"num_query_groups is {groups}, but must divide num_attention_heads = {shape.heads}."
        )


def _notes(model: ChosenModel, custom: Path) -> Iterator[str]:
    if note := model.asked.family.unknown_note:
        yield note
    yield (
        f"The model of {custom} has {model.exact_count / 1e9:.4g} B parameters; the days are "
        f"for the formula's {model.asked.size_b:g} B."
    )
