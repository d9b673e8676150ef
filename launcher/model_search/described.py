"""What a base configuration of either layout says of its model. Not: what a search makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.recommend.chosen_model import ModelQuestion
from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.core import Architecture, ConfigError, Experts, KeyPath, RawConfig, dotted

RECIPE: KeyPath = ("model", "config")
"""Section of a recipe of NeMo 2.0; a file of 1.0 has none."""
_TWO_MATRICES = "glu"
_LENGTHS: tuple[KeyPath, ...] = (
    ("data", "seq_length"),
    (*RECIPE, "seq_length"),
    ("model", "data", "seq_length"),
    ("model", "encoder_seq_length"),
    ("model", "seq_length"),
    ("model", "max_position_embeddings"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedModel:
    """Numbers of a file; of T5 ``layers`` are those of one stack.

    ``method`` is how activations are checkpointed, None where they are not.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    global_batch: int
    method: str | None


def described(base: RawConfig, family: Family) -> DescribedModel:
    """Read them.

    Raises:
        ConfigError: the file lacks one.
    """
    where = section(base, family)
    return DescribedModel(
        layers=_whole(base, (*where, "num_layers")),
        hidden=_whole(base, (*where, "hidden_size")),
        heads=_whole(base, (*where, "num_attention_heads")),
        ffn=_whole(base, (*where, "ffn_hidden_size")),
        global_batch=_whole(base, batch_path(base)),
        method=base.get((*where, "activations_checkpoint_method")),
    )


def decoder_tokens(base: RawConfig, sequence: int) -> int:
    """Tokens of a sample that T5's decoder writes.

    Where no number stands, a quarter of what it reads, as in runs on this machine.
    """
    path = ("model", "data", "seq_length_dec")
    return max(1, sequence // 4) if base.get(path) is None else _whole(base, path)


def section(base: RawConfig, family: Family) -> KeyPath:
    """Where the model's shape stands."""
    if RECIPE in base:
        return RECIPE
    return ("model", "encoder") if family.is_encoder_decoder else ("model",)


def batch_path(base: RawConfig) -> KeyPath:
    """Where the global batch stands."""
    return ("data", "global_batch_size") if RECIPE in base else ("model", "global_batch_size")


def data_path(base: RawConfig) -> KeyPath:
    """Where the training's data stand."""
    return ("data", "paths") if RECIPE in base else ("model", "data", "data_prefix")


def with_data(document: RawConfig, data: Any, tokenizer: str | None) -> RawConfig:
    """A configuration with its data and tokenizer, where there are some."""
    where = ("data", "tokenizer_path") if RECIPE in document else ("model", "tokenizer", "model")
    for path, value in ((data_path(document), data), (where, tokenizer)):
        document = document if value is None else document.with_value(path, value)
    return document


def with_length(base: RawConfig, sequence: int) -> RawConfig:
    """With samples of so many tokens, wherever a file says how long they are."""
    for path in _LENGTHS:
        if path in base:
            base = base.with_value(path, sequence)
    return base


def with_facts(base: RawConfig, asked: ModelQuestion, tokens_b: float) -> RawConfig:
    """With our own section, which says what a rank must know of a whole file of NeMo's."""
    facts = (
        ("family", asked.family.name),
        ("model_size_in_b", asked.size_b),
        ("vocab_size", asked.vocabulary),
        ("num_tokens_in_b", tokens_b),
    )
    for name, value in facts:
        base = base.with_value(("autoconf", name), value)
    return base


def architecture_of(
    base: RawConfig, family: Family, vocabulary: int, sequence: int
) -> Architecture:
    """The model of a user's whole file, as the planner sees it.

    Raises:
        ConfigError: the file lacks a number.
    """
    model: dict[str, Any] = base.get(section(base, family)) or {}
    shape = described(base, family)
    gated = _TWO_MATRICES in str(model.get("activation", ""))
    is_old = family.name in ("gpt3", "bert", "t5", "mt5")
    experts, per_token = model.get("num_moe_experts"), model.get("moe_router_topk") or 2
    return Architecture(
        name=family.name,
        layers=shape.layers,
        encoder_layers=shape.layers if family.is_encoder_decoder else 0,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=model.get("num_query_groups") or shape.heads,
        head=model.get("kv_channels") or shape.hidden // shape.heads,
        ffn=shape.ffn,
        vocabulary=vocabulary,
        gated=bool(model.get("gated_linear_unit", gated)),
        tied_embeddings=bool(model.get("share_embeddings_and_output_weights", is_old)),
        positions=sequence if is_old else 0,
        biases=bool(model.get("add_bias_linear", is_old)),
        causal=family.name != "bert",
        experts=Experts(count=experts, per_token=per_token, ffn=shape.ffn) if experts else None,
    )


def _whole(base: RawConfig, path: KeyPath) -> int:
    value = base.get(path)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{dotted(path)} of the base configuration is {value!r}, but must be a whole number "
            "of at least 1."
        )
    return value
