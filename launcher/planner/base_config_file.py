"""Write ``recommend``'s base configuration, and lay a user's file over it. Not: its values."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from autoconf_launch.autotuner.recommend.base_config import BaseConfig, RunPlan, base_config
from autoconf_launch.autotuner.recommend.chosen_model import ChosenModel
from autoconf_launch.autotuner.recommend.nemo1_layout import custom_document, nemo1_document
from autoconf_launch.autotuner.recommend.recipe_layout import recipe_document
from autoconf_launch.core import ConfigError, RawConfig, dotted
from autoconf_launch.tuning_spaces.recommend_tables import base_template

from ..config_file import read_config

_NEAR = 0.8
_OWN = "autoconf"


def base_document(model: ChosenModel, plan: RunPlan, custom: Path | None) -> RawConfig:
    """The base configuration with a user's file laid over it.

    A file that describes a whole model is taken as it is, and only run and trainer are set, as
    NVIDIA's tool does; the keys of any other file win one by one. Steps follow from the model,
    which ``custom_model`` makes as the file has it.

    Raises:
        ConfigError: the file cannot be read, or a key of it is nearly one that exists.
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
    for path, value in given.leaves():
        ours = ours.with_value(path, value)
    return ours


def _with_family(document: RawConfig, base: BaseConfig) -> RawConfig:
    """Add the model's family, which an export must know."""
    family = base.model.asked.family.name
    return document.with_value((_OWN, "family"), document.get((_OWN, "family"), family))


def is_whole_model(given: RawConfig) -> bool:
    """Whether a user's file describes a whole model of NeMo 1.0."""
    return ("model", "num_layers") in given and ("model", "hidden_size") in given


def write_base_config(document: RawConfig, path: Path) -> None:
    """As YAML that a safe loader reads.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_text(yaml.safe_dump(document.to_dict(), sort_keys=False, width=99), path)


def write_text(text: str, path: Path) -> None:
    """With the folders that it stands in.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


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
                yield f"{dotted(path[:depth])} is unknown; did you mean '{close[0]}'?"
            break
