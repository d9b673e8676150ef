"""Which modules of a live model tensor parallelism splits, and how.

The words are transformers': those of ``config.base_model_tp_plan``, or of a model's own attribute
``tensor_plan``, from names of modules (``*`` for any number) to words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from autoconf_launch.core import ConfigError, DegreeLimits, nearest_known

COLUMNS, ROWS = "colwise", "rowwise"
"""A rank has some of the outputs, or some of the inputs of a matrix."""
GATHERED_COLUMNS = "colwise_gather_output"
"""Columns whose outputs are gathered on all ranks: a head."""
SUMMED = "replicated_with_grad_allreduce"
"""Each rank has all weights and, as it applies them to its heads alone, part of their gradient."""
WORDS = (COLUMNS, ROWS, GATHERED_COLUMNS, SUMMED)
_HEADS = (("num_attention_heads", "attention heads"), ("num_key_value_heads", "key-value heads"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """Full names of modules with their words."""

    words: tuple[tuple[str, str], ...]
    limits: DegreeLimits


def read_tensor_plan(model: nn.Module) -> TensorPlan:
    """The plan of the model or of the first module inside it that has one; may be empty.

    Raises:
        ConfigError: the model's own has a wrong name or word.
    """
    for name, module in model.named_modules():
        if getattr(module, "tensor_plan", None):
            return _plan(model, dict(_own_words(name, module)), module)
        foreign = getattr(getattr(module, "config", None), "base_model_tp_plan", None)
        if isinstance(foreign, Mapping) and foreign:
            base = str(getattr(module, "base_model_prefix", ""))
            if not isinstance(getattr(module, base, None), nn.Module):
                base = ""
            found = _foreign_words(model, _join(name, base), foreign)
            if any(word != SUMMED for word in found.values()):
                return _plan(model, found, module)
    missing = (
        f"{type(model).__name__} has no tensor plan (config.base_model_tp_plan of transformers, "
        "or an attribute tensor_plan of its own); set it to 1."
    )
    return TensorPlan(words=(), limits=DegreeLimits(missing=missing))


def tensor_split(model: nn.Module) -> DegreeLimits:
    """What a degree must divide in a live model, or why there is nothing to split."""
    try:
        return read_tensor_plan(model).limits
    except ConfigError as error:
        return DegreeLimits(missing=str(error))


def tensor_words(model: nn.Module) -> dict[str, str]:
    """Names of modules with their words in the plan; empty where there is no valid one."""
    try:
        return dict(read_tensor_plan(model).words)
    except ConfigError:
        return {}


def _plan(model: nn.Module, words: dict[str, str], owner: nn.Module) -> TensorPlan:
    config = getattr(owner, "config", None)
    heads = {what: getattr(config, key, None) for key, what in _HEADS}
    counts = {what: count for what, count in heads.items() if isinstance(count, int)}
    for name, word in words.items():
        if word != SUMMED:
            what, count = _split_size(model.get_submodule(name), word)
            counts[f"{what} of {name_pattern(name)}"] = count
    return TensorPlan(
        words=tuple(words.items()), limits=DegreeLimits(counts=tuple(counts.items()))
    )


def _split_size(module: nn.Module, word: str) -> tuple[str, int]:
    rows, columns = (int(size) for size in getattr(module, "weight").shape)  # noqa: B009
    if isinstance(module, nn.Embedding):
        return "rows", rows
    return ("inputs", columns) if word == ROWS else ("outputs", rows)


def _own_words(prefix: str, owner: nn.Module) -> Iterator[tuple[str, str]]:
    plan: Any = owner.tensor_plan
    where = f"{type(owner).__name__}.tensor_plan"
    known = {name_pattern(name) for name, _ in owner.named_modules() if name}
    for pattern, word in dict(plan).items():
        if word not in WORDS:
            raise ConfigError(
                f"{where} says {word!r} of {pattern!r}; {nearest_known(str(word), WORDS)}"
            )
        found = [(n, m) for n, m in owner.named_modules() if fnmatchcase(n, pattern)]
        if not found:
            raise ConfigError(
                f"{where} names {pattern!r}, which no module has; {nearest_known(pattern, known)}"
            )
        for name, module in found:
            if word != SUMMED and not isinstance(module, (nn.Linear, nn.Embedding)):
                raise ConfigError(
                    f"{where} says {word!r} of {name}, but a {type(module).__name__} cannot be "
                    "split; name Linear and Embedding modules."
                )
            yield _join(prefix, name), word


def _foreign_words(model: nn.Module, base: str, plan: Mapping[str, str]) -> dict[str, str]:
    """Words for Linear modules; a module one of whose parts has another word stays whole."""
    found: dict[str, str] = {}
    whole: set[str] = set()
    for name, module in model.named_modules():
        words = (w for p, w in plan.items() if fnmatchcase(name, _join(base, p)))
        word = next(words, None)
        if word is None:
            continue
        if word == SUMMED or (isinstance(module, nn.Linear) and word in (COLUMNS, ROWS)):
            found[name] = word
        else:
            whole.add(_parent(name))
    return {name: word for name, word in found.items() if _parent(name) not in whole}


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def name_pattern(name: str) -> str:
    """A module's name with ``*`` for each number in it."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def _join(*names: str) -> str:
    return ".".join(filter(None, names))
