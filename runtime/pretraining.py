"""A pretraining of any base configuration, for searches on this machine.

``python -m autoconf_launch.runtime.pretraining --base-config base.json --config config.json``
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from autoconf_launch.core import ConfigError, RawConfig

from .engine import ConfigSource, Engine, initialize

RECIPE_MODEL = ("model", "config")
"""Path of the model in a NeMo 2.0 recipe; files of 1.0 have no such section."""
_LLAMA = ("LlamaConfig", "LlamaForCausalLM")
_QWEN = ("Qwen2Config", "Qwen2ForCausalLM")
_T5 = ("T5Config", "T5ForConditionalGeneration")
_MIXTRAL = ("MixtralConfig", "MixtralForCausalLM")
_FAMILIES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "gpt3": ("GPT2Config", "GPT2LMHeadModel"),
        "bert": ("BertConfig", "BertForMaskedLM"),
        "t5": _T5,
        "mt5": _T5,
        "mistral": ("MistralConfig", "MistralForCausalLM"),
        "mixtral": _MIXTRAL,
        "gemma": ("GemmaConfig", "GemmaForCausalLM"),
        "nemotron": ("NemotronConfig", "NemotronForCausalLM"),
        "qwen": _QWEN,
        "qwen2": _QWEN,
        "starcoder": ("Starcoder2Config", "Starcoder2ForCausalLM"),
    }
)
"""Families that are not here are trained as Llama's, whose form they have; with experts all are
Mixtral's."""
_WITHOUT_HEAD_SIZE = frozenset({"Qwen2Config", "Starcoder2Config"})
PAD, END, MASK = 0, 1, 2
SPECIAL = 3
LEAST_VOCABULARY = 256 + SPECIAL
"""Tokens that a model must know to read this text."""
_SUMS = 20_000
_MASKED = 0.15
_MISSING = 4
"""An encoder's input lacks at most one token in this many."""
_ENCODER_DECODERS = ("t5", "mt5")
_NOT_COUNTED = -100
_WARM_UP = 5
"""Steps that are not timed."""


class RankShare(Sampler[list[int]]):
    """This rank's part of each global batch, out of one order that all layouts share."""

    def __init__(self, engine: Engine, samples: int, steps: int) -> None:
        self.engine, self.steps = engine, steps
        self.order = torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.steps):
            start = step * self.engine.global_batch
            batch = range(start, start + self.engine.global_batch)
            yield [self.order[i % len(self.order)] for i in batch[self.engine.share]]


def train(
    base: RawConfig, config: ConfigSource, steps: int, say: Callable[[str], None] = lambda _: None
) -> None:
    """Train on the text of sums; rank 0 says its loss, and how long a step takes.

    Raises:
        ConfigError: the model knows fewer tokens than the text has.
    """
    if vocabulary_of(base) < LEAST_VOCABULARY:
        raise ConfigError(
            f"autoconf.vocab_size is {vocabulary_of(base)}, but the text needs a vocabulary of "
            f"{LEAST_VOCABULARY}; give a larger one (recommend --vocab, vocab_size=…)."
        )
    torch.manual_seed(0)
    engine = initialize(lambda: build(base), config)
    data = Sums(family_of(base), sequence_of(base), written_of(base))
    share = RankShare(engine, len(data), steps)
    speaks = engine.rank == 0
    ends = [time.perf_counter()]
    for step, batch in enumerate(DataLoader(data, batch_sampler=share), start=1):
        loss = engine.step(batch)
        loss.item()  # waits for the device
        ends.append(time.perf_counter())
        if speaks and (step % 10 == 0 or step == 1):
            say(f"step {step:4d}  loss {loss:.4f}")
    if speaks:
        say(f"done: {steps} steps, last loss {loss:.4f}, step_time_s {median_step_s(ends):.4g}")


def median_step_s(ends: Sequence[float]) -> float:
    """Seconds between the ends of steps, without the first few if there are more."""
    seconds = [after - before for before, after in pairwise(ends)]
    return statistics.median(seconds[_WARM_UP:] or seconds)


class Sums(Dataset[dict[str, Tensor]]):
    """Windows of the text with the expected output of a family's model."""

    def __init__(self, family: str, tokens: int, written: int | None = None) -> None:
        """Make the text.

        Args:
            family: of the model.
            tokens: of a window.
            written: tokens that an encoder-decoder writes of it; None: the missing part.
        """
        self._family, self._tokens = family, tokens
        self._written = max(1, tokens // _MISSING) if written is None else written
        numbers = torch.Generator().manual_seed(0)
        pairs = torch.randint(0, 100, (_SUMS, 2), generator=numbers).tolist()
        text = "".join(f"{a} and {b} are {a + b}. " for a, b in pairs).encode()
        self._ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long() + SPECIAL

    def __len__(self) -> int:
        beyond = self._written if self._family in _ENCODER_DECODERS else 0
        return max(1, (len(self._ids) - beyond) // self._tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        end = (index + 1) * self._tokens
        window = self._ids[index * self._tokens : end]
        if self._family in _ENCODER_DECODERS:
            return _with_a_gap(window, self._ids[end : end + self._written], self._written)
        return _masked_batch(window, index) if self._family == "bert" else _next(window)


def _next(window: Tensor) -> dict[str, Tensor]:
    """Transformers shifts the labels itself."""
    return {"input_ids": window, "labels": window}


def _masked_batch(window: Tensor, index: int) -> dict[str, Tensor]:
    chosen = torch.rand(len(window), generator=torch.Generator().manual_seed(index)) < _MASKED
    chosen[index % len(window)] = True
    return {
        "input_ids": window.where(~chosen, torch.tensor(MASK)),
        "labels": window.where(chosen, torch.tensor(_NOT_COUNTED)),
    }


def _with_a_gap(window: Tensor, following: Tensor, written: int) -> dict[str, Tensor]:
    """The middle, a quarter at most, is missing and must be predicted, then the continuation."""
    gap = min(written, max(1, len(window) // _MISSING))
    start = (len(window) - gap) // 2
    given = window.clone()
    given[start : start + gap] = MASK
    said = torch.cat((window[start : start + gap], following[: written - gap]))
    return {"input_ids": given, "labels": said}


def build(base: RawConfig) -> nn.Module:
    """A model with fresh weights.

    Raises:
        ConfigError: transformers is not installed, or the file lacks a value that its model needs.
    """
    family = family_of(base)
    names = _MIXTRAL if _has_experts(base) else _FAMILIES.get(family, _LLAMA)
    describe = _SHAPES.get(family, _decoder) if RECIPE_MODEL not in base else _recipe
    try:
        shape = describe(base)
    except KeyError as error:
        raise ConfigError(f"The base configuration of {family} lacks {error}.") from error
    if names[0] in _WITHOUT_HEAD_SIZE:
        shape.pop("head_dim", None)
    config = getattr(_library(), names[0])(**shape)
    config.use_cache = False
    model: nn.Module = getattr(_library(), names[1])(config)
    return model


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


def written_of(base: RawConfig) -> int | None:
    """Tokens that an encoder-decoder writes of a sample; None if the file does not say."""
    written = base.get(("model", "data", "seq_length_dec"))
    return None if written is None else int(written)


def _library() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise ConfigError(
            "Models are built by transformers, which is not installed here; run "
            "pip install 'autoconf-launch[search]'."
        ) from error


def _gpt2(base: RawConfig) -> dict[str, Any]:
    model = base.get(("model",))
    dropout = model.get("hidden_dropout", 0.0)
    return {
        "vocab_size": vocabulary_of(base),
        "n_positions": sequence_of(base),
        "n_layer": model["num_layers"],
        "n_embd": model["hidden_size"],
        "n_head": model["num_attention_heads"],
        "n_inner": model["ffn_hidden_size"],
        "initializer_range": model["init_method_std"],
        "embd_pdrop": dropout,
        "resid_pdrop": dropout,
        "attn_pdrop": dropout,
    }


def _bert(base: RawConfig) -> dict[str, Any]:
    model = base.get(("model",))
    return {
        "vocab_size": vocabulary_of(base),
        "max_position_embeddings": sequence_of(base),
        "num_hidden_layers": model["num_layers"],
        "hidden_size": model["hidden_size"],
        "num_attention_heads": model["num_attention_heads"],
        "intermediate_size": model["ffn_hidden_size"],
        "initializer_range": model["init_method_std"],
        "hidden_dropout_prob": model["hidden_dropout"],
    }


def _t5(base: RawConfig) -> dict[str, Any]:
    """T5, and mT5, which has another vocabulary; transformers' own does not scale a tied head."""
    encoder, decoder = base.get(("model", "encoder")), base.get(("model", "decoder"))
    return {
        "vocab_size": vocabulary_of(base),
        "num_layers": encoder["num_layers"],
        "num_decoder_layers": decoder["num_layers"],
        "d_model": encoder["hidden_size"],
        "d_ff": encoder["ffn_hidden_size"],
        "d_kv": encoder["kv_channels"],
        "num_heads": encoder["num_attention_heads"],
        "dropout_rate": encoder["hidden_dropout"],
        "feed_forward_proj": "gated-gelu",
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    }


def _recipe(base: RawConfig) -> dict[str, Any]:
    """Models of the recipes: their configurations share their names in transformers."""
    model = base.get(RECIPE_MODEL)
    shape = _shared_settings(base, model)
    tied = model["share_embeddings_and_output_weights"]
    return {**shape, "vocab_size": model["vocab_size"], "tie_word_embeddings": tied}


def _decoder(base: RawConfig) -> dict[str, Any]:
    """Settings of a decoder in a file of NeMo 1.0: Llama, Mixtral and others."""
    model = base.get(("model",))
    tied = model.get("share_embeddings_and_output_weights", False)
    return {**_shared_settings(base, model), "tie_word_embeddings": tied}


def _shared_settings(base: RawConfig, model: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    return {
        "vocab_size": vocabulary_of(base),
        "max_position_embeddings": sequence_of(base),
        "num_hidden_layers": model["num_layers"],
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": model.get("num_query_groups") or heads,
        "head_dim": model.get("kv_channels") or hidden // heads,
        "intermediate_size": model["ffn_hidden_size"],
        "initializer_range": model["init_method_std"],
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **_experts(model),
    }


def _experts(model: dict[str, Any]) -> dict[str, Any]:
    """Settings of a mixture of experts, with transformers' defaults; empty for a dense model."""
    names = {
        "num_local_experts": "num_moe_experts",
        "num_experts_per_tok": "moe_router_topk",
        "intermediate_size": "moe_ffn_hidden_size",
    }
    found = {ours: model[name] for ours, name in names.items() if model.get(name)}
    return found if "num_local_experts" in found else {}


def _has_experts(base: RawConfig) -> bool:
    return any(base.get((*where, "num_moe_experts")) for where in (RECIPE_MODEL, ("model",)))


_SHAPES: Mapping[str, Callable[[RawConfig], dict[str, Any]]] = MappingProxyType(
    {"gpt3": _gpt2, "bert": _bert, "t5": _t5, "mt5": _t5}
)


def main() -> None:
    """Read two JSON documents and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True, metavar="FILE.json|JSON")
    own_help = "the runtime's own"
    parser.add_argument("--config", required=True, metavar="FILE.json|JSON", help=own_help)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    given = parser.parse_args()
    try:
        base = RawConfig(_document(given.base_config))
        is_inline = given.config.lstrip().startswith("{")
        config = _document(given.config) if is_inline else given.config
        train(base, config, given.steps, _write)
    except ConfigError as error:
        sys.exit(str(error))


def _document(text: str) -> dict[str, Any]:
    try:
        is_inline = text.lstrip().startswith("{")
        found = json.loads(text if is_inline else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{text} is not a JSON document: {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{text} is not a JSON object.")
    return found


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
