"""A model, by its name or its shapes: what all verbs about models ask in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .parameters import VerbQuestion, parameter, question
from .units import DEGREE, NAME, SIZE, SWITCH, ValueUnit

MODEL = ValueUnit(metavar="M")
SHAPES_GROUP = "shapes (they change the model, or are all of it)"
_SHAPES: Mapping[str, tuple[ValueUnit, str]] = MappingProxyType(
    {
        "layers": (SIZE, "transformer layers"),
        "encoder_layers": (SIZE, "layers of the encoder, of a model that has one"),
        "hidden": (SIZE, "hidden size"),
        "heads": (SIZE, "attention heads"),
        "kv_heads": (SIZE, "key and value heads; default: as many as heads"),
        "head": (SIZE, "head_dim; default: hidden size over heads"),
        "ffn": (SIZE, "width of the MLP"),
        "vocabulary": (SIZE, "vocabulary size"),
        "positions": (SIZE, "learned positions"),
        "gated": (SWITCH, "whether the MLP is gated (SwiGLU)"),
        "biases": (SWITCH, "whether linear layers have biases"),
        "tied_embeddings": (SWITCH, "whether input and output share an embedding"),
        "experts": (DEGREE, "of each MoE layer"),
        "experts_per_token": (DEGREE, "experts that each token is routed to; default 2"),
        "expert_ffn": (SIZE, "width of an expert; default --ffn"),
    }
)


@question
class Modelled(VerbQuestion):
    """A model, by its name or its shapes."""

    model: str | None = parameter(
        "model", "a name, a Hugging Face id, config.json or model_info.json", MODEL, default=None
    )
    shapes: Mapping[str, Any] | None = parameter(
        SHAPES_GROUP,
        "fields of Architecture, such as layers, that change the model or are all of it",
        NAME,
        default=None,
        parts=_SHAPES,
    )
