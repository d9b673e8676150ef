"""A model of transformers' classes from a base configuration. Not: its text, nor its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from torch import nn

from autoconf_launch.core import ConfigError, RawConfig


def build(base: RawConfig) -> nn.Module:
    """A model with fresh weights.

    Raises:
        ConfigError: the file names no family that is known here.
    """
    family = family_of(base)
    config = _CONFIGS.get(family, _llama)(base)
    config.use_cache = False
    return _CLASSES.get(family, transformers.LlamaForCausalLM)(config)


def family_of(base: RawConfig) -> str:
    """The family that ``recommend`` noted in its file."""
    return str(base.get(("autoconf", "family"), "gpt3"))


def vocabulary_of(base: RawConfig) -> int:
    """Tokens that the model knows."""
    size = base.get(("autoconf", "vocab_size"))
    if size is None:
        raise ConfigError("The base configuration lacks autoconf.vocab_size; write it again.")
    return int(size)


def sequence_of(base: RawConfig) -> int:
    """Tokens of a sample."""
    where = ("data",) if ("data", "seq_length") in base else ("model", "data")
    return int(base.get((*where, "seq_length")))


def _gpt2(base: RawConfig) -> Any:
    model = base.get(("model",))
    dropout = model.get("hidden_dropout", 0.0)
    return transformers.GPT2Config(
        vocab_size=vocabulary_of(base),
        n_positions=sequence_of(base),
        n_layer=model["num_layers"],
        n_embd=model["hidden_size"],
        n_head=model["num_attention_heads"],
        n_inner=model["ffn_hidden_size"],
        initializer_range=model["init_method_std"],
        embd_pdrop=dropout,
        resid_pdrop=dropout,
        attn_pdrop=dropout,
    )


def _bert(base: RawConfig) -> Any:
    model = base.get(("model",))
    return transformers.BertConfig(
        vocab_size=vocabulary_of(base),
        max_position_embeddings=sequence_of(base),
        num_hidden_layers=model["num_layers"],
        hidden_size=model["hidden_size"],
        num_attention_heads=model["num_attention_heads"],
        intermediate_size=model["ffn_hidden_size"],
        initializer_range=model["init_method_std"],
        hidden_dropout_prob=model["hidden_dropout"],
    )


def _t5(base: RawConfig) -> Any:
    """T5, and mT5, which has another vocabulary; transformers' own does not scale a tied head."""
    encoder, decoder = base.get(("model", "encoder")), base.get(("model", "decoder"))
    return transformers.T5Config(
        vocab_size=vocabulary_of(base),
        num_layers=encoder["num_layers"],
        num_decoder_layers=decoder["num_layers"],
        d_model=encoder["hidden_size"],
        d_ff=encoder["ffn_hidden_size"],
        d_kv=encoder["kv_channels"],
        num_heads=encoder["num_attention_heads"],
        dropout_rate=encoder["hidden_dropout"],
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
    )


def _decoder(make: Callable[..., Any], *, has_head_size: bool) -> Callable[[RawConfig], Any]:
    """Models of the recipes: their configurations share their names in transformers."""

    def config(base: RawConfig) -> Any:
        model = base.get(("model", "config"))
        own = {"head_dim": model["kv_channels"]} if has_head_size else {}
        return make(
            vocab_size=model["vocab_size"],
            max_position_embeddings=model["seq_length"],
            num_hidden_layers=model["num_layers"],
            hidden_size=model["hidden_size"],
            num_attention_heads=model["num_attention_heads"],
            num_key_value_heads=model["num_query_groups"],
            intermediate_size=model["ffn_hidden_size"],
            initializer_range=model["init_method_std"],
            tie_word_embeddings=model["share_embeddings_and_output_weights"],
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
            **own,
        )

    return config


_llama = _decoder(transformers.LlamaConfig, has_head_size=True)
_CONFIGS: dict[str, Callable[[RawConfig], Any]] = {
    "gpt3": _gpt2,
    "bert": _bert,
    "t5": _t5,
    "mt5": _t5,
    "mistral": _decoder(transformers.MistralConfig, has_head_size=True),
    "mixtral": _decoder(transformers.MixtralConfig, has_head_size=True),
    "gemma": _decoder(transformers.GemmaConfig, has_head_size=True),
    "nemotron": _decoder(transformers.NemotronConfig, has_head_size=True),
    "qwen": _decoder(transformers.Qwen2Config, has_head_size=False),
    "qwen2": _decoder(transformers.Qwen2Config, has_head_size=False),
    "starcoder": _decoder(transformers.Starcoder2Config, has_head_size=False),
}
_CLASSES: dict[str, Callable[[Any], nn.Module]] = {
    "gpt3": transformers.GPT2LMHeadModel,
    "bert": transformers.BertForMaskedLM,
    "t5": transformers.T5ForConditionalGeneration,
    "mt5": transformers.T5ForConditionalGeneration,
    "mistral": transformers.MistralForCausalLM,
    "mixtral": transformers.MixtralForCausalLM,
    "gemma": transformers.GemmaForCausalLM,
    "nemotron": transformers.NemotronForCausalLM,
    "qwen": transformers.Qwen2ForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "starcoder": transformers.Starcoder2ForCausalLM,
}
"""Families that are not here are trained as Llama's, whose form they have."""
