"""A Hugging Face ``config.json`` as an Architecture, without transformers.

Each model type is a row of names and traits; names that a row omits have their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from autoconf_launch.core import Architecture, ConfigError, DecodeError, RawConfig, nearest_known

from .families import describes_type, family_model, family_types, front_type, text_type
from .shapes import build_architecture, contradiction

_USUAL = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head": "head_dim",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}
_OF_EXPERTS = {"per_token": "num_experts_per_tok", "first_dense": "first_k_dense_replace"}
INSTEAD = "ask for the script itself (autoconf-launch fit --cluster C -- python train.py ...)"
"""Advice that works for any model, as the end of a sentence."""
_TEXT_PART = "text_config"
TYPE_KEYS = ("model_type", "_class_name")
"""Keys of a model's type in files of transformers and of diffusers."""
_PARTS = ("vision", "audio", "speech", "image", "video", "encoder", "decoder")
_PART_NAMES = frozenset({"hidden_size", "num_hidden_layers", "d_model", "embed_dim"})
_NOT_MODELLED: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {"gpt2": ("add_cross_attention", False), "opt": ("word_embed_proj_dim", None)}
)
"""Settings of known types that change their weights, with the default value; None: hidden_size."""
_MOST = 1 << 40
"""No size of a model is above this."""
_FLAT_TYPES: Mapping[str, str] = MappingProxyType({"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"})
"""Types whose files mix the text part's keys with other parts; with the text part's type."""
_COUNTS = ("num_local_experts", "n_routed_experts", "num_experts")
"""Names of the number of experts, of which a document has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """A model type: other ``names`` for sizes, and ``traits`` for ``build_architecture``."""

    names: Mapping[str, str] = field(default_factory=dict)
    traits: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = True


_GATED = {"gated": True, "biases": False}
_GPT2 = {
    "layers": "n_layer",
    "hidden": "n_embd",
    "heads": "n_head",
    "ffn": "n_inner",
    "positions": "n_positions",
}
_T5 = {
    "layers": "num_decoder_layers",
    "encoder_layers": "num_layers",
    "hidden": "d_model",
    "heads": "num_heads",
    "head": "d_kv",
    "ffn": "d_ff",
    "relative_positions": "relative_attention_num_buckets",
}
_BERT = _Type(names={"positions": "max_position_embeddings"}, traits={"causal": False})
_TYPES: Mapping[str, _Type] = MappingProxyType(
    {
        "gpt2": _Type(names=_GPT2),
        "gpt_bigcode": _Type(names=_GPT2),
        "gpt_neox": _Type(tied=False),
        "opt": _Type(names={"ffn": "ffn_dim", "positions": "max_position_embeddings"}),
        "bloom": _Type(
            names={"layers": "n_layer", "heads": "n_head"}, traits={"norms_outside": 1}
        ),
        "mpt": _Type(
            names={"layers": "n_layers", "hidden": "d_model", "heads": "n_heads"},
            traits={"biases": False},
        ),
        "bert": _BERT,
        "roberta": _BERT,
        "t5": _Type(names=_T5, traits={"biases": False}),
        "mt5": _Type(names=_T5, traits={"biases": False}, tied=False),
        "umt5": _Type(names=_T5, traits={"biases": False}, tied=False),
        "llama": _Type(traits=_GATED, tied=False),
        "mistral": _Type(traits=_GATED, tied=False),
        "ministral": _Type(traits=_GATED, tied=False),
        "mixtral": _Type(traits=_GATED, tied=False),
        "phi": _Type(traits={"norms_per_layer": 1}, tied=False),
        "phi3": _Type(traits=_GATED, tied=False),
        "falcon": _Type(
            names={"kv_heads": "num_kv_heads", "ffn": "ffn_hidden_size"},
            traits={"biases": False, "norm_biases": True},
        ),
        "granite": _Type(traits=_GATED, tied=False),
        "olmo": _Type(traits={**_GATED}, tied=False),
        "olmo2": _Type(traits={**_GATED}, tied=False),
        "olmo3": _Type(traits={**_GATED}, tied=False),
        "smollm3": _Type(traits=_GATED),
        "gemma": _Type(traits=_GATED),
        "gemma2": _Type(traits={**_GATED, "norms_per_layer": 4}),
        "gemma3_text": _Type(traits={**_GATED, "norms_per_layer": 4, "query_key_norms": True}),
        "qwen2": _Type(traits={**_GATED, "qkv_biases": True}, tied=False),
        "qwen2_moe": _Type(traits={**_GATED, "qkv_biases": True}, tied=False),
        "qwen3": _Type(traits={**_GATED, "query_key_norms": True}, tied=False),
        "qwen3_moe": _Type(traits={**_GATED, "query_key_norms": True}, tied=False),
        "qwen2_vl_text": _Type(traits={**_GATED, "qkv_biases": True}, tied=False),
        "qwen2_5_vl_text": _Type(traits={**_GATED, "qkv_biases": True}, tied=False),
        "qwen3_vl_text": _Type(traits={**_GATED, "query_key_norms": True}, tied=False),
        "qwen3_vl_moe_text": _Type(traits={**_GATED, "query_key_norms": True}, tied=False),
        "nemotron": _Type(traits={"biases": False, "norm_biases": True}, tied=False),
        "starcoder2": _Type(),
        "gpt_oss": _Type(traits=_GATED, tied=False),
        "deepseek_v2": _Type(traits=_GATED, tied=False),
        "deepseek_v3": _Type(traits=_GATED, tied=False),
        "kimi_k2": _Type(traits=_GATED, tied=False),
        "glm4_moe": _Type(traits=_GATED, tied=False),
        "qwen3_next": _Type(traits=_GATED, tied=False),
    }
)


def is_hugging_face(config: RawConfig) -> bool:
    """True if a document is a configuration of transformers or diffusers."""
    return any(isinstance(config.get((key,)), str) for key in TYPE_KEYS)


def is_known_type(config: RawConfig) -> bool:
    """True if the document's type can be read without its library."""
    kind = _kind(config.to_dict())
    return kind in _TYPES or describes_type(kind)


def is_known_tower(document: Mapping[str, Any]) -> bool:
    """True if the only part besides the text part is a tower that is modelled."""
    tower = front_type(_kind(document))
    return tower is not None and other_parts(document) == (tower["section"],)


def _kind(document: Mapping[str, Any]) -> str:
    return str(next((document[key] for key in TYPE_KEYS if document.get(key)), None))


def nearest_type(kind: str) -> str:
    """A phrase with the nearest type that is read here."""
    is_class = kind[:1].isupper()
    known = (name for name in (*_TYPES, *family_types()) if name[:1].isupper() == is_class)
    return nearest_known(kind, known)


def from_hugging_face(config: RawConfig, name: str, *, usual: bool = False) -> Architecture:
    """Read a configuration of a model that has one part, or a known tower before its text part.

    Args:
        config: the document.
        name: for messages and tables.
        usual: read an unknown type by the default names (as transformers spells any type's).

    Raises:
        ConfigError: the type is unknown, a part or setting is not modelled, or a size is missing
            or none.
    """
    document = config.to_dict()
    if is_known_tower(document):
        return _behind_tower(document, name)
    if describes_type(_kind(document)):
        found = family_model(document, _kind(document), name)
        if wrong := contradiction(found):
            raise ConfigError(f"{name} cannot be read: {wrong}.")
        return found
    if parts := other_parts(document):
        raise ConfigError(
            f"{name}: {' and '.join(parts)} {'are' if len(parts) > 1 else 'is'} not modelled, so "
            f"memory and times would be wrong; {INSTEAD}.{_text_advice(document, parts)}"
        )
    inner = document.get(_TEXT_PART)
    if isinstance(inner, dict):
        document = {"model_type": document.get("model_type"), **inner}
    kind = document.get("model_type")
    document = _fill_defaults(document)
    _require_usual(document, name)
    row = _TYPES.get(str(kind))
    if row is None:
        if not usual:
            raise ConfigError(
                f"{name}: model_type is {kind!r}, which only transformers can read; "
                f"{nearest_type(str(kind))}"
            )
        row = _Type(names={"positions": "learned_positions"}, traits=_generic_traits(document))
    return _read(document, row, name)


def _behind_tower(document: Mapping[str, Any], name: str) -> Architecture:
    """A text part, and the tower in front of it; older files have the text part's keys at top."""
    kind = _kind(document)
    tower, text = front_type(kind), text_type(kind)
    assert tower is not None
    assert text is not None
    section, inner = tower["section"], document.get(_TEXT_PART)
    if not isinstance(inner, dict):
        inner = {key: value for key, value in document.items() if key != section}
    tied = document.get("tie_word_embeddings", inner.get("tie_word_embeddings", text["tied"]))
    own = {**inner, "model_type": text["type"], "tie_word_embeddings": tied}
    model = from_hugging_face(RawConfig(own), name)
    seen = {**document[section], "text_hidden": model.hidden}
    return replace(model, front=family_model(seen, tower["type"], f"{name}, {section}"))


def _text_advice(document: Mapping[str, Any], parts: Sequence[str]) -> str:
    """Advice on how to read the text part; empty if it cannot be read."""
    inner, kind = document.get(_TEXT_PART), _FLAT_TYPES.get(str(document.get("model_type")))
    if isinstance(inner, dict):
        is_read = str(inner.get("model_type")) in _TYPES
        return " For the text part alone, give a file with the keys of its text_config." * is_read
    if kind is None:
        return ""
    return (
        f" For the text part alone, give the file without {' and '.join(parts)} and with "
        f'"model_type": "{kind}".'
    )


def _fill_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its type's defaults for missing values."""
    usual = _defaults().get(str(document.get("model_type")), {})
    counted = any(name in document for name in _COUNTS)
    kept = {key: value for key, value in usual.items() if not (counted and key in _COUNTS)}
    return {**kept, **document}


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("hugging_face_defaults.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, dict[str, Any]] = yaml.load(text, Loader=loader)
    return found


def other_parts(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Sections of the parts besides the text part, such as ``vision_config``."""
    return tuple(
        key
        for key, value in document.items()
        if key.endswith("_config") and key != _TEXT_PART and _is_part(key, value)
    )


def _is_part(key: str, value: object) -> bool:
    """True if a section describes a model, and not how one is stored or used."""
    if not isinstance(value, dict):
        return False
    return key.startswith(_PARTS) or any(name in value for name in _PART_NAMES)


def _require_usual(document: Mapping[str, Any], name: str) -> None:
    """Refuse settings of a known type that change its weights and are not modelled."""
    kind, hidden = document.get("model_type"), document.get("hidden_size")
    key, usual = _NOT_MODELLED.get(str(kind), ("", None))
    usual = hidden if usual is None else usual
    if (value := document.get(key, usual)) != usual:
        raise ConfigError(
            f"{name}: {key} is {value!r} and not {usual!r}, which is not modelled; {INSTEAD}."
        )


def _read(document: Mapping[str, Any], row: _Type, name: str) -> Architecture:
    shapes: dict[str, Any] = dict(row.traits)
    for ours, theirs in {**_USUAL, **row.names}.items():
        value = document.get(theirs, document.get(_USUAL.get(ours, theirs)))
        if value is not None:
            shapes[ours] = _size(value, f"{name}: {theirs}")
    if "layers" not in shapes and "encoder_layers" in shapes:
        shapes["layers"] = shapes["encoder_layers"]
    shapes["tied_embeddings"] = _is_tied(document, row, name)
    if "gated" in str(document.get("feed_forward_proj", "")):
        shapes["gated"] = True
    shapes |= _mixture(document, name) | _latent(document, name) | _specials(document, shapes)
    for needed in ("layers", "hidden", "heads", "vocabulary"):
        if needed not in shapes:
            theirs = {**_USUAL, **row.names}[needed]
            raise ConfigError(f"{name} has no {theirs}, which must be a whole number.")
    try:
        return build_architecture(name, shapes)
    except DecodeError as error:
        spelled = {**_USUAL, **_OF_EXPERTS, **row.names}
        word = re.compile(rf"(?<![\w.])({'|'.join(spelled)})(?=,| is )")
        said = word.sub(lambda found: spelled[found[1]], str(error))
        raise ConfigError(f"{name} cannot be read: {said}.") from error


def _is_tied(document: Mapping[str, Any], row: _Type, name: str) -> bool:
    tied = document.get("tie_word_embeddings", row.tied)
    if not isinstance(tied, bool):
        raise ConfigError(f"{name}: tie_word_embeddings is {tied!r}, but must be true or false.")
    return tied


def _mixture(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    for key in _COUNTS:
        count = document.get(key)
        if not count:
            continue
        ffn = document.get("moe_intermediate_size") or document.get("intermediate_size")
        chosen = _OF_EXPERTS["per_token"]
        experts = {
            "count": _size(count, f"{name}: {key}"),
            "per_token": _size(document.get(chosen, 2), f"{name}: {chosen}"),
            "ffn": _size(ffn, f"{name}: moe_intermediate_size"),
            "first_dense": _count(document, "first_k_dense_replace", name),
            "every": _count(document, "decoder_sparse_step", name) or 1,
        }
        if (groups := _count(document, "n_group", name)) > 1:
            experts |= {"groups": groups, "chosen_groups": _count(document, "topk_group", name)}
        wide = _count(document, "shared_expert_intermediate_size", name)
        shared = wide // experts["ffn"] or _count(document, "n_shared_experts", name)
        return {"experts": {**experts, "shared": shared}}
    return {}


def _latent(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not document.get("kv_lora_rank"):
        return {}
    names = {
        "query_rank": "q_lora_rank",
        "key_value_rank": "kv_lora_rank",
        "rope_head": "qk_rope_head_dim",
        "value_head": "v_head_dim",
    }
    given = {ours: (theirs, document.get(theirs)) for ours, theirs in names.items()}
    parts = {
        ours: _size(value, f"{name}: {theirs}") if value or ours != "query_rank" else None
        for ours, (theirs, value) in given.items()
    }
    head = _size(document.get("qk_nope_head_dim"), f"{name}: qk_nope_head_dim")
    return {"latent": parts, "head": head}


def _specials(document: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that only certain model types have, besides the common shapes."""
    kind, hidden = document.get("model_type"), shapes.get("hidden", 0)
    found: dict[str, Any] = {}
    if kind in ("bert", "roberta"):  # token types, a norm, the pooler
        types = _count({"type_vocab_size": 2, **document}, "type_vocab_size", str(kind))
        found["other_parameters"] = (types + 2 + hidden + 1) * hidden
    if kind == "opt":  # its table of positions starts at 2
        found["positions"] = shapes.get("positions", 0) + 2
    if kind == "gpt_bigcode" and document.get("multi_query", True):
        found["kv_heads"] = 1
    if kind in ("deepseek_v3", "kimi_k2", "glm4_moe") and document.get("n_routed_experts"):
        sparse = shapes.get("layers", 0) - _count(document, "first_k_dense_replace", str(kind))
        found["other_parameters"] = sparse * _count(document, "n_routed_experts", str(kind))
    found |= _attention_of(str(kind), document)
    if kind == "glm4_moe" and shapes.get("heads"):  # rounded down
        found["head"] = shapes.get("head") or shapes.get("hidden", 0) // shapes["heads"]
    return found | _other_weights(str(kind), document, shapes)


def _attention_of(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Windows, states, and operations besides the projections."""
    if kind == "mistral" and document.get("use_sliding_window", True):
        return {"window": _count(document, "sliding_window", kind) or None}
    if kind == "gemma3_text":  # five layers of a window to one that sees all
        window = _count({"sliding_window": 4096, **document}, "sliding_window", kind)
        every = _count({"sliding_window_pattern": 6, **document}, "sliding_window_pattern", kind)
        return {"window": window or None, "full_every": every}
    if kind == "gpt_oss":
        window = _count({"sliding_window": 128, **document}, "sliding_window", kind)
        return {"window": window or None, "full_every": 2}
    if kind == "glm4_moe":
        beside = {"qkv_biases": "attention_bias", "query_key_norms": "use_qk_norm"}
        return {ours: bool(document.get(theirs)) for ours, theirs in beside.items()}
    return _gated_delta(document) if kind == "qwen3_next" else {}


def _gated_delta(document: Mapping[str, Any]) -> dict[str, Any]:
    """The state of layers without attention; the default sizes if the document has none."""
    usual = {"full_attention_interval": 4, "linear_num_key_heads": 16, "linear_key_head_dim": 128}
    usual |= {"linear_num_value_heads": 32, "linear_value_head_dim": 128}
    given = {**usual, **{name: document[name] for name in usual if document.get(name)}}
    full_every, *sizes = (_size(value, f"qwen3_next: {name}") for name, value in given.items())
    names = ("key_heads", "key_head", "value_heads", "value_head")
    return {"full_every": full_every, "state": dict(zip(names, sizes, strict=True))}


def _other_weights(
    kind: str, document: Mapping[str, Any], shapes: Mapping[str, Any]
) -> dict[str, Any]:
    """Weights that shapes do not give; Falcon's shared keys and single norm, too."""
    hidden, heads = shapes.get("hidden", 0), shapes.get("heads", 0)
    keys = shapes.get("kv_heads", heads)
    head = shapes.get("head") or (hidden // heads if heads else 0)
    if kind == "phi":  # biases of the head
        return {"other_parameters": shapes.get("vocabulary", 0)}
    if kind in ("olmo2", "olmo3"):  # norms of all queries and of all keys
        return {"other_layer_parameters": (heads + keys) * head}
    if kind == "gpt_oss":  # biases of q, k, v and o, of experts and router; sinks
        experts, ffn = (_count(document, x, kind) for x in ("num_local_experts", _USUAL["ffn"]))
        attention = (heads + 2 * keys) * head + hidden + heads
        return {"other_layer_parameters": attention + experts * (2 * ffn + hidden + 1)}
    if (
        kind == "qwen3_next"
    ):  # gate and norms of each fourth layer's heads, gate of the shared expert
        every = _count({"full_attention_interval": 4, **document}, "full_attention_interval", kind)
        gates = hidden * heads * head + 2 * head
        return {"other_layer_parameters": gates // max(1, every) + hidden}
    if kind == "falcon" and not document.get("new_decoder_architecture"):
        one = {"kv_heads": 1} if document.get("multi_query", True) else {"kv_heads": heads}
        return {**one, "norms_per_layer": 1 if document.get("parallel_attn", True) else 2}
    return {}


def _generic_traits(document: Mapping[str, Any]) -> dict[str, Any]:
    gated = document.get("hidden_act") in ("silu", "swiglu")
    return {"gated": gated, "biases": not gated}


def _count(document: Mapping[str, Any], key: str, name: str) -> int:
    """A number; 0 if it is missing or null."""
    value = document.get(key)
    return _size(value, f"{name}: {key}") if value else 0


def _size(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST:
        raise ConfigError(f"{what} is {value!r}, but must be a whole number of at least 1.")
    return value
