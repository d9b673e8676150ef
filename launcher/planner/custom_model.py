"""The model that a user's file makes of one of the tables. Not: the file that is written of it.

Text and predictions follow the file: its shape, sequence, batch and kind win over the tables'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.recommend.architectures import Form, form_of
from autoconf_launch.autotuner.recommend.base_config import RunPlan
from autoconf_launch.autotuner.recommend.base_reader import pretraining
from autoconf_launch.autotuner.recommend.chosen_model import ChosenModel, counted_model
from autoconf_launch.autotuner.recommend.pretraining import Pretraining, TrainedModel
from autoconf_launch.autotuner.recommend.shapes import Shape
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import KeyPath as Key

from ..config_file import read_config
from .base_config_file import base_document, is_whole_model

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


def custom_model(model: ChosenModel, custom: Path) -> ChosenModel:
    """A chosen model with what a file says of it; its notes say that, and what is counted.

    Raises:
        ConfigError: the file cannot be read, or a number of it is none.
    """
    given = read_config(custom)
    document = base_document(model, _ANY_PLAN, custom)
    if is_whole_model(given):
        for path, value in _lacking(document, model):
            document = document.with_value(path, value)
    document = _with_sequence(document, given)
    try:
        found = _chosen(model, pretraining(document))
    except ConfigError as error:
        raise ConfigError(f"{custom}: {error}") from error
    return replace(found, notes=tuple(_notes(found, custom)))


def _with_sequence(document: RawConfig, given: RawConfig) -> RawConfig:
    """With the file's, where a reader looks for it; links to other keys are left out."""
    values = (given.get(path) for path in _SEQUENCES)
    sequence = next((value for value in values if isinstance(value, int)), None)
    if sequence is None:
        return document
    is_recipe = ("model", "config") in document
    return document.with_value(_SEQUENCES[0] if is_recipe else _SEQUENCES[2], sequence)


def _lacking(document: RawConfig, model: ChosenModel) -> Iterator[tuple[Key, Any]]:
    """What a whole file of NeMo 1.0 may leave to its defaults, or to links."""
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


def _chosen(model: ChosenModel, file: Pretraining) -> ChosenModel:
    trained, batch = file.model, file.split.global_batch
    _require_numbers(trained, batch)
    asked = replace(
        model.asked,
        sequence=trained.sequence,
        vocabulary=trained.vocabulary or model.asked.vocabulary,
    )
    is_changed = batch != model.batch.global_batch
    own = replace(model.batch, global_batch=batch, note="") if is_changed else model.batch
    shape = _shape(trained, file.schedule.learning_rate)
    return counted_model(asked, shape, own, _form(trained, form_of(asked.family)))


def _require_numbers(trained: TrainedModel, batch: int) -> None:
    numbers = {
        "num_layers": trained.layers,
        "hidden_size": trained.hidden,
        "num_attention_heads": trained.heads,
        "ffn_hidden_size": trained.ffn,
        "seq_length": trained.sequence,
        "global_batch_size": batch,
    }
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}, but must be at least 1.")


def _shape(trained: TrainedModel, learning_rate: float) -> Shape:
    return Shape(
        layers=trained.layers,
        hidden=trained.hidden,
        heads=trained.heads,
        ffn=trained.ffn,
        kv=trained.head,
        learning_rate=learning_rate,
    )


def _form(trained: TrainedModel, usual: Form) -> Form:
    return replace(
        usual,
        gated=trained.gated,
        biases=trained.biases,
        learned_positions=trained.learned_positions,
        tied=trained.tied,
        groups=trained.groups,
        experts=trained.experts,
        experts_per_token=trained.experts_per_token,
    )


def _notes(model: ChosenModel, custom: Path) -> Iterator[str]:
    if note := model.asked.family.unknown_note:
        yield note
    yield (
        f"The model is that of {custom}, exactly counted {model.exact_count / 1e9:.4g} B; "
        f"the formula's {model.asked.size_b:g} B is what its days are for."
    )
