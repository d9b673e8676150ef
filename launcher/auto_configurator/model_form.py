"""A recipe's model in its own form: groups, experts, ties. Not: its widths (model_facts)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.recommend.architectures import Form
from autoconf_launch.core import ConfigError

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "groups": ("num_query_groups", "num_key_value_heads"),
    "experts": ("num_moe_experts", "num_local_experts"),
    "experts_per_token": ("moe_router_topk", "num_experts_per_tok"),
    "expert_ffn": ("moe_ffn_hidden_size", "moe_intermediate_size"),
    "shared_ffn": ("moe_shared_expert_intermediate_size",),
}
FLAGS: Mapping[str, tuple[str, ...]] = {
    "gated": ("gated_linear_unit",),
    "biases": ("add_bias_linear", "bias"),
    "tied": ("share_embeddings_and_output_weights", "tie_word_embeddings"),
}
"""By their names in NeMo 2.0, NeMo 1.0 and transformers."""
FURTHER = ("moe_layer_freq", "position_embedding_type", "activation")
_SECTIONS = ("config", "encoder", "")
_MISSING: Any = object()


def own_form(model: Mapping[str, Any], usual: Form, where: str) -> Form:
    """The form that a model's section describes; what it leaves out is as usual.

    None says that a number follows from others: as many groups as heads, no experts.

    Raises:
        ConfigError: a number is none.
    """
    given: dict[str, Any] = {}
    for field, names in NUMBERS.items():
        value = _number(model, names, where)
        if value is not _MISSING:
            given[field] = value
    for field, names in FLAGS.items():
        value = value_in(model, names)
        if isinstance(value, bool):
            given[field] = value
    activation, positions = (value_in(model, (name,)) for name in ("activation", FURTHER[1]))
    if isinstance(activation, str):
        given.setdefault("gated", "glu" in activation)
    if isinstance(positions, str):
        given["learned_positions"] = positions == "learned_absolute"
    given |= _sparsity(value_in(model, ("moe_layer_freq",)))
    if given.get("experts_per_token") == 0:
        del given["experts_per_token"]
    return replace(usual, **given)


def value_in(model: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """What a model's section has below ``config``, ``encoder`` or itself; else a mark of ours."""
    sections = (model.get(section) if section else model for section in _SECTIONS)
    for words in sections:
        if isinstance(words, Mapping):
            found = next((words[name] for name in names if name in words), _MISSING)
            if found is not _MISSING:
                return found
    return _MISSING


def _number(model: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    """At least 0, which None is, too; an interpolation says nothing."""
    value = value_in(model, names)
    if value is _MISSING or isinstance(value, str):
        return _MISSING
    if isinstance(value, bool) or not isinstance(value, (int, type(None))) or (value or 0) < 0:
        raise ConfigError(
            f"{where}: {names[0]} is {value!r}, but must be a whole number, or null."
        )
    return value or 0


def _sparsity(value: Any) -> dict[str, int]:
    """Layers with experts: every n-th, or those that a list has 1 for after its leading zeros."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return {"every": value}
    if isinstance(value, list) and 1 in value:
        return {"first_dense": value.index(1)}
    return {}
