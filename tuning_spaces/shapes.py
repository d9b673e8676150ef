"""Architectures by their numbers. Not: files of models (``models``, ``hugging_face``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoconf_launch.core import Architecture, DecodeError, decode

_MOST_LAYERS = 1 << 16
_MOST = 1 << 40
"""No size of a model is above this."""
_NORMS_OF_A_LAYER = 2
_SHORTHAND = frozenset(
    {
        "relative_positions",
        "norms_outside",
        "norms_per_layer",
        "query_key_norms",
        "qkv_biases",
        "norm_biases",
    }
)


def build_architecture(name: str, shapes: Mapping[str, Any]) -> Architecture:
    """An architecture from its numbers; missing numbers follow from the others.

    ``head`` is hidden / heads, ``ffn`` four times hidden, ``kv_heads`` as many as heads. Besides
    the fields of ``Architecture``, shorthand for weights that they do not give:
    ``relative_positions`` (distances of T5's tables), ``norms_outside`` and ``norms_per_layer``,
    ``query_key_norms``, ``qkv_biases``, ``norm_biases`` (of models without other biases).

    Raises:
        DecodeError: a number is missing or is none.
    """
    given = dict(shapes)
    given.setdefault("kv_heads", given.get("heads"))
    given.setdefault("ffn", 4 * given.get("hidden", 0))
    if not given.get("head") and given.get("heads"):
        given["head"] = given.get("hidden", 0) // given["heads"]
    short = {key: given.pop(key) for key in _SHORTHAND & given.keys()}
    architecture = decode(Architecture, {"name": name, **given})
    if wrong := contradiction(architecture) or _no_head(architecture, shapes):
        raise DecodeError(wrong)
    return _with_others(architecture, short)


def contradiction(a: Architecture) -> str | None:
    """The reason why such a model is impossible; None if it is possible."""
    if a.heads > a.hidden:
        return f"heads is {a.heads}, but must be at most hidden, which is {a.hidden}"
    if a.layers > _MOST_LAYERS:
        return f"layers is {a.layers}, but must be at most {_MOST_LAYERS}"
    names = ("layers", "hidden", "heads", "kv_heads", "head", "ffn", "vocabulary")
    for name in names if a.tokens is None else names[:-1]:
        if not 1 <= getattr(a, name) <= _MOST:
            return f"{name} is {getattr(a, name)}, but must be from 1 to {_MOST}"
    experts, counted = a.experts, sum(kind.count for kind in a.kinds)
    if counted not in (0, a.layers):
        return (
            f"layers is {a.layers}, but must be {counted}, as many as its {len(a.kinds)} kinds of "
            "layers have together; only its config.json can change them"
        )
    if a.heads % a.kv_heads:
        return f"heads is {a.heads}, but must be a multiple of kv_heads, which is {a.kv_heads}"
    return _wrong_experts(a) if experts else None


def _wrong_experts(a: Architecture) -> str | None:
    experts = a.experts
    if experts and not 1 <= experts.per_token <= experts.count:
        return f"per_token is {experts.per_token}, but must be 1 to {experts.count} experts"
    if experts and not 0 <= experts.first_dense < a.layers:
        return f"first_dense is {experts.first_dense}, but must be less than {a.layers} layers"
    return None


def _no_head(a: Architecture, shapes: Mapping[str, Any]) -> str | None:
    if a.hidden % a.heads == 0 or shapes.get("head") or a.latent is not None:
        return None
    return f"hidden is {a.hidden}, but must be a multiple of heads, which is {a.heads}"


def _with_others(a: Architecture, short: Mapping[str, Any]) -> Architecture:
    """Count shorthand weights into ``other_parameters`` and ``other_layer_parameters``."""
    norm = (2 if a.biases else 1) * a.hidden
    stacks = 2 if a.encoder_layers else 1
    other = short.get("relative_positions", 0) * a.heads * stacks
    other += short.get("norms_outside", 0) * norm
    norms = short.get("norms_per_layer", _NORMS_OF_A_LAYER)
    layer = (norms - _NORMS_OF_A_LAYER) * norm
    if short.get("query_key_norms"):
        layer += 2 * a.head
    if short.get("qkv_biases"):
        layer += (a.heads + 2 * a.kv_heads) * a.head
    if short.get("norm_biases"):
        layer, other = layer + norms * a.hidden, other + a.hidden
    return replace(
        a,
        other_parameters=a.other_parameters + other,
        other_layer_parameters=a.other_layer_parameters + layer,
    )
