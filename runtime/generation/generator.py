"""A rank's part of a model that writes the requested number of tokens, greedily.

Stages of a pipeline have a range of blocks and a cache each: hidden states go forward, tokens
come back.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autoconf_launch.core import (
    ConfigError,
    GenerationTask,
    RawConfig,
    even_pipeline_split,
    stages_obstacle,
)

from ..model import DTYPES
from ..parallel import make_meshes
from ..pretraining import build, family_of
from ..rank import Ranks
from ..stages import Stage, StageError, blocks_to_cut, find_places, make_stages
from .tensor_shards import RandomWeights, TensorShards, first_names, weights_on_meta

_FIRST_TOKEN = 0
"""First token of an encoder-decoder's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenText:
    """Result of one generation, with this rank's times.

    ``tokens`` has the written ones, of shape (batch, output_len).
    """

    tokens: Tensor
    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A model that is cut and has no memory yet; ``load`` gives it some."""

    model: nn.Module
    asked: GenerationTask
    ranks: Ranks
    weights: RandomWeights
    meshes: Any
    stage: Stage | None
    tensor_ranks: int

    def load(self) -> Generator:
        """Make the weights, and room for the tokens."""
        self.weights.fill(self.model)
        self.model.eval()
        return Generator(self)


def prepare_generator(base: RawConfig, asked: GenerationTask, ranks: Ranks) -> PreparedModel:
    """The model of a base configuration, cut as a layout says.

    Raises:
        ConfigError: the model writes no text, its positions do not suffice, or it has no such
            layout.
    """
    with weights_on_meta():
        model: Any = build(base)
    _check(model, base, asked)
    names, layout = first_names(model), asked.layout
    meshes = make_meshes(ranks.device, layout)
    tensor = meshes.tensor
    cuts = TensorShards(model, tensor).cuts if tensor is not None else {}
    weights = RandomWeights(
        names=names,
        cuts=cuts,
        rank=tensor.get_local_rank() if tensor is not None else 0,
        ranks=layout.tensor_parallel,
        dtype=DTYPES[asked.precision],
        device=ranks.device,
    )
    stage = _cut_stage(model, asked, meshes) if meshes.pipeline is not None else None
    return PreparedModel(
        model=model,
        asked=asked,
        ranks=ranks,
        weights=weights,
        meshes=meshes,
        stage=stage,
        tensor_ranks=tensor.size() if tensor is not None and cuts else 1,
    )


def _check(model: Any, base: RawConfig, asked: GenerationTask) -> None:
    family, config = family_of(base), model.config
    if (
        not config.is_encoder_decoder and model.get_output_embeddings() is None
    ) or family == "bert":
        raise ConfigError(
            f"Models of family {family} write no text; search inference of a model that does."
        )
    positions = getattr(config, "max_position_embeddings", None)
    whole = asked.input_len + asked.output_len
    if isinstance(positions, int) and whole > positions and not config.is_encoder_decoder:
        raise ConfigError(
            f"input_len + output_len is {whole}, but the model has {positions} positions; use "
            "fewer tokens."
        )


def _cut_stage(model: Any, asked: GenerationTask, meshes: Any) -> Stage:
    """Leave this rank its blocks, which number their caches from 0."""
    if model.config.is_encoder_decoder:
        raise ConfigError(
            "parallelism.pipeline is above 1, but stages share out one list of blocks and an "
            "encoder-decoder has two; set it to 1."
        )
    blocks = blocks_to_cut(model)
    obstacle = stages_obstacle(asked.layout, len(blocks.keys))
    if obstacle is not None:
        raise ConfigError(obstacle)
    counts = even_pipeline_split(len(blocks.keys), meshes.pipeline.size())
    rank = meshes.pipeline.get_local_rank()
    (stage,) = make_stages(model, find_places(model, counts), (rank,))
    if stage.stale:
        raise StageError(f"{next(iter(stage.stale))} stands before the blocks")
    for piece in stage.blocks.pieces:
        for module in piece.modules():
            if isinstance(number := getattr(module, "layer_idx", None), int):
                module.__dict__["layer_idx"] = number - sum(counts[:rank])
    stage.begin_at_first_block()
    return stage


class Generator:
    """Writes batch after batch; tokens to read are the same on all ranks and every time."""

    def __init__(self, prepared: PreparedModel) -> None:
        self._model: Any = prepared.model
        self._asked, self._ranks = prepared.asked, prepared.ranks
        self._stage, self._meshes = prepared.stage, prepared.meshes
        config: Any = prepared.model.config
        self._config = config
        numbers = torch.Generator().manual_seed(0)
        shape = (self._asked.layout.micro_batch, self._asked.input_len)
        read = torch.randint(0, self._config.vocab_size, shape, generator=numbers)
        self._read = read.to(self._ranks.device)
        self._cache = self._make_cache()
        self._encoded: Any = None
        self._next = self._next_whole
        if self._stage is not None:
            self._stage.loss = self._finish_stage
            self._next = self._next_staged
        self._tokens = self._ids = self._read

    @property
    def model(self) -> nn.Module:
        """This rank's part."""
        module: nn.Module = self._model
        return module

    @property
    def cache_numel(self) -> int:
        """Numbers in the keys and values of this rank, once something was written."""
        caches: tuple[Any, ...] = (self._cache,)
        if self._config.is_encoder_decoder:
            caches = (self._cache.self_attention_cache, self._cache.cross_attention_cache)
        layers = (layer for cache in caches for layer in cache.layers)
        return sum(layer.keys.numel() + layer.values.numel() for layer in layers)

    @torch.inference_mode()
    def write(self) -> WrittenText:
        """Write one batch: the tokens, and the seconds of both phases."""
        self._cache.reset()
        start_s = self._now()
        tokens = [self._next(self._begin())]
        prefill_s = self._now()
        while len(tokens) < self._asked.output_len:
            tokens.append(self._next(tokens[-1]))
        return WrittenText(
            tokens=torch.cat(tokens, 1),
            prefill_s=prefill_s - start_s,
            decode_s=self._now() - prefill_s,
        )

    def _begin(self) -> Tensor:
        if not self._config.is_encoder_decoder:
            return self._read
        self._encoded = self._model.get_encoder()(self._read)
        return torch.full_like(self._read[:, :1], _FIRST_TOKEN)

    def _logits(self, ids: Tensor) -> Tensor:
        settings: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        if self._config.is_encoder_decoder:
            settings |= {"decoder_input_ids": ids, "encoder_outputs": self._encoded}
        else:
            settings |= {"input_ids": ids, "logits_to_keep": 1}
        logits: Tensor = self._model(**settings).logits
        return logits[:, -1]

    def _next_whole(self, ids: Tensor) -> Tensor:
        return self._logits(ids).argmax(-1, keepdim=True)

    def _next_staged(self, ids: Tensor) -> Tensor:
        """Pass the hidden state on; the last stage gives all others the tokens."""
        assert self._stage is not None
        stage, group = self._stage, self._meshes.pipeline.get_group()
        self._ids = ids
        self._tokens = torch.empty_like(ids[:, :1])
        received = self._hidden_state(ids)
        if stage.index:
            dist.recv(received, group=group, group_src=stage.index - 1)
        hidden = stage(received, torch.tensor(0))
        if not stage.is_last:
            dist.send(hidden.contiguous(), group=group, group_dst=stage.index + 1)
        dist.broadcast(self._tokens, group=group, group_src=stage.count - 1)
        return self._tokens

    def _finish_stage(self, number: int) -> Tensor:
        """The model's own pass; only the last stage reaches its end."""
        self._tokens = self._next_whole(self._ids)
        return torch.zeros(())

    def _hidden_state(self, ids: Tensor) -> Tensor:
        shape = (*ids.shape, self._config.hidden_size)
        return torch.empty(shape, dtype=DTYPES[self._asked.precision], device=ids.device)

    def _make_cache(self) -> Any:
        """Room for keys and values of this rank's blocks and heads, taken once."""
        library: Any = import_module("transformers")
        make: Callable[..., Any] = library.StaticCache
        read, written = self._asked.input_len, self._asked.output_len
        if self._config.is_encoder_decoder:
            own, cross = (make(config=self._config, max_cache_len=n) for n in (written, read))
            return library.EncoderDecoderCache(own, cross)
        config = self._config
        if self._stage is not None:
            config = _shorter(config, self._stage)
        return make(config=config, max_cache_len=read + written)

    def _now(self) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)
        return time.perf_counter()


def _shorter(config: Any, stage: Stage) -> Any:
    """A configuration of only this stage's blocks, with the kind of each block."""
    own, count = copy.deepcopy(config), len(stage.blocks.pieces)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        keys = [int(key) for key in stage.blocks.keys]
        own.layer_types = [kinds[key] for key in keys]
    own.num_hidden_layers = count
    return own
