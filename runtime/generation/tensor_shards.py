"""Random weights of a tensor rank's part of a model, and its products, for generation only.

A weight's numbers depend only on its name, so that every layout has the same model. The
plan is the training runtime's if the model has one. GPT-2 and T5 have none in transformers:
theirs is read off their attention and MLP modules. Embedding and head are cut by the vocabulary,
experts of a mixture by their inner width. Weights are plain tensors, as a dispatch of distributed
ones would take longer than a token's products.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from autoconf_launch.core import ConfigError

from ..parallel import COLUMNS, ROWS, SUMMED, read_tensor_plan

_SPREAD = 0.02
"""Spread of biases, and of norms around 1; a matrix keeps the size of vectors."""
_PACKED_COLUMNS, _SUMMED_EXPERTS = "packed_colwise", "moe_tp_experts"
_EXPERT_DIMENSIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part of a weight that a tensor rank has.

    Attributes:
        dim: along which it is cut; None: the weight is whole.
        fused: adjacent matrices along it, each of which is cut.
        first_alone: only the first rank has the numbers, the others zeros: a bias of a sum.
    """

    dim: int | None = None
    fused: int = 1
    first_alone: bool = False

    def part(self, whole: Tensor, rank: int, ranks: int) -> Tensor:
        if self.first_alone and rank:
            return torch.zeros_like(whole)
        if self.dim is None:
            return whole
        dim = self.dim
        matrices = whole.chunk(self.fused, dim)
        return torch.cat([one.chunk(ranks, dim)[rank] for one in matrices], dim)


_EXPERT_CUTS = {_PACKED_COLUMNS: Cut(dim=1, fused=2), ROWS: Cut(dim=2)}
"""Weights are (experts, outputs, inputs); the first products of an expert are fused."""


UNCUT = Cut()


@contextmanager
def weights_on_meta() -> Iterator[None]:
    """Modules that are made inside have weights without memory, and real buffers."""
    register = nn.Module.register_parameter

    def register_on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), requires_grad=False)
        register(self, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def first_names(model: nn.Module) -> dict[int, str]:
    """The first name of each weight, by its identity; weights that are shared have several."""
    return {id(weight): name for name, weight in model.named_parameters()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWeights:
    """Makes the weights of one rank.

    Attributes:
        names: of all weights of the model, by their identity before it was cut.
        cuts: by name; a weight without one is whole.
        rank: among ``ranks`` tensor ranks.
    """

    names: Mapping[int, str]
    cuts: Mapping[str, Cut]
    rank: int
    ranks: int
    dtype: torch.dtype
    device: torch.device

    def fill(self, model: nn.Module) -> None:
        """Replace weights without memory, one weight after the other; shared ones stay shared."""
        made: dict[int, nn.Parameter] = {}
        for module in model.modules():
            for key, weight in module._parameters.items():
                if weight is None or not weight.is_meta:
                    continue
                if id(weight) not in made:
                    made[id(weight)] = self._make(weight)
                module._parameters[key] = made[id(weight)]
        for name, buffer in list(model.named_buffers()):
            parent, _, key = name.rpartition(".")
            model.get_submodule(parent)._buffers[key] = buffer.to(self.device)

    def _make(self, weight: nn.Parameter) -> nn.Parameter:
        name = self.names[id(weight)]
        seed = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
        whole = torch.empty(weight.shape, dtype=self.dtype, device=self.device)
        spread = _SPREAD if weight.ndim == 1 else weight.shape[-1] ** -0.5
        whole.normal_(0.0, spread, generator=seed)
        if weight.ndim == 1 and name.endswith("weight"):
            whole += 1.0  # of a norm
        part = self.cuts.get(name, UNCUT).part(whole, self.rank, self.ranks)
        return nn.Parameter(part, requires_grad=False)


class TensorShards:
    """The cuts of a model's weights, and its ranks' exchanges."""

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        """Cut a model whose weights have no memory yet.

        Raises:
            ConfigError: it has no plan, or the ranks do not divide the sizes that it cuts.
        """
        self._model, self._mesh = model, mesh
        self._names = {id(weight): name for name, weight in model.named_parameters()}
        self.cuts: dict[str, Cut] = {}
        if not self._cut_own_modules():
            self._cut_planned()
        self._cut_vocabulary()

    def _cut_own_modules(self) -> bool:
        """Cut GPT-2's and T5's modules, by their submodules; False if there are none."""
        found = False
        for name, module in self._model.named_modules():
            for parts, cut in _OWN_CUTS.items():
                if all(hasattr(module, part) for part in parts):
                    cut(self, name, module)
                    found = True
                    break
        return found

    def divide(self, module: Any, name: str, *attributes: str) -> None:
        """Divide numbers that a module reshapes by.

        Raises:
            ConfigError: the ranks do not divide them.
        """
        ranks = self._mesh.size()
        for attribute in attributes:
            count = int(getattr(module, attribute))
            if count % ranks:
                raise ConfigError(
                    f"parallelism.tensor is {ranks}, which does not divide {count} ({attribute} "
                    f"of {name}); use a divisor."
                )
            setattr(module, attribute, count // ranks)

    def columns(self, module: Any, *, fused: int = 1) -> None:
        """A rank has some of a matrix's outputs."""
        dim = _output_dim(module)
        if dim:
            self.divide(module, "Conv1D", "nf")
        self._add(module.weight, Cut(dim=dim, fused=fused))
        if module.bias is not None:
            self._add(module.bias, Cut(dim=0, fused=fused))

    def rows(self, module: Any) -> None:
        """A rank has some of a matrix's inputs, and the results are added up."""
        self._add(module.weight, Cut(dim=1 - _output_dim(module)))
        if module.bias is not None:
            self._add(module.bias, Cut(first_alone=True))
        module.register_forward_hook(self._sum)

    def heads_of_bias(self, module: nn.Embedding) -> None:
        """A rank has the position biases of its heads."""
        self._add(module.weight, Cut(dim=1))

    def _cut_planned(self) -> None:
        plan = read_tensor_plan(self._model)
        obstacle = plan.limits.obstacle(self._mesh.size())
        if obstacle:
            raise ConfigError(obstacle)
        for name, word in plan.words:
            module = self._model.get_submodule(name)
            if word == COLUMNS:
                self.columns(module)
            elif word == ROWS:
                self.rows(module)
            elif word != SUMMED:
                raise ConfigError(f"{name} has the word {word!r}, which generation does not know.")
        self._cut_experts()

    def _cut_experts(self) -> None:
        config: Any = self._model.config
        words: Mapping[str, str] = config.base_model_tp_plan or {}
        base = str(getattr(self._model, "base_model_prefix", ""))
        named = {f"{base}.{pattern}": word for pattern, word in words.items()}
        for name, weight in self._model.named_parameters():
            word = _word(named, name)
            if weight.ndim == _EXPERT_DIMENSIONS and word in _EXPERT_CUTS:
                self._add(weight, _EXPERT_CUTS[word])
        for name, module in self._model.named_modules():
            if _word(named, name) == _SUMMED_EXPERTS:
                module.register_forward_hook(self._sum)

    def _cut_vocabulary(self) -> None:
        """Cut embedding and head by tokens, if the ranks divide them."""
        model: Any = self._model
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        if head is None or head.weight.shape[0] % self._mesh.size():
            return
        if embedding.weight.shape == head.weight.shape:
            for module in model.modules():
                if isinstance(module, nn.Embedding) and module.weight is embedding.weight:
                    self._cut_embedding(module)
        self.columns(head)
        head.register_forward_hook(self._gather)

    def _cut_embedding(self, module: nn.Embedding) -> None:
        self._add(module.weight, Cut(dim=0))
        rows = module.weight.shape[0] // self._mesh.size()
        _OwnTokens(rows, rows * self._mesh.get_local_rank(), self._sum).attach(module)

    def _add(self, weight: Tensor, cut: Cut) -> None:
        name, ranks = self._names[id(weight)], self._mesh.size()
        size = 0 if cut.dim is None else weight.shape[cut.dim] // cut.fused
        if size % ranks:
            raise ConfigError(
                f"parallelism.tensor is {ranks}, which does not divide the {size} of {name}; use "
                "a divisor."
            )
        self.cuts[name] = cut

    def _sum(self, module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
        dist.all_reduce(result, group=self._mesh.get_group())
        return result

    def _gather(self, module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
        result = result.contiguous()
        parts = [torch.empty_like(result) for _ in range(self._mesh.size())]
        dist.all_gather(parts, result, group=self._mesh.get_group())
        return torch.cat(parts, -1)


class _OwnTokens:
    """Looks up the tokens that a rank has; other ranks' tokens are zeros until ranks add up."""

    def __init__(
        self, rows: int, first: int, add_up: Callable[[nn.Module, Any, Tensor], Tensor]
    ) -> None:
        self._rows, self._first, self._add_up = rows, first, add_up
        self._foreign: Tensor | None = None

    def attach(self, module: nn.Embedding) -> None:
        module.num_embeddings, module.padding_idx = self._rows, None
        module.register_forward_pre_hook(self._before)
        module.register_forward_hook(self._after)

    def _before(self, module: nn.Module, arguments: Any) -> tuple[Tensor]:
        own = arguments[0] - self._first
        self._foreign = (own < 0) | (own >= self._rows)
        return (own.masked_fill(self._foreign, 0),)

    def _after(self, module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
        assert self._foreign is not None
        found = result.masked_fill(self._foreign.unsqueeze(-1), 0.0)
        return self._add_up(module, arguments, found)


def _cut_gpt2_attention(shards: TensorShards, name: str, module: Any) -> None:
    """Cut the one matrix of query, key and value by heads."""
    fused = module.c_attn.weight.shape[1] // module.split_size
    shards.divide(module, name, "num_heads", "split_size")
    shards.columns(module.c_attn, fused=fused)
    shards.rows(module.c_proj)


def _cut_gpt2_mlp(shards: TensorShards, name: str, module: Any) -> None:
    shards.columns(module.c_fc)
    shards.rows(module.c_proj)


def _cut_t5_attention(shards: TensorShards, name: str, module: Any) -> None:
    shards.divide(module, name, "n_heads", "inner_dim")
    for part in (module.q, module.k, module.v):
        shards.columns(part)
    shards.rows(module.o)
    if module.has_relative_attention_bias:
        shards.heads_of_bias(module.relative_attention_bias)


def _cut_t5_mlp(shards: TensorShards, name: str, module: Any) -> None:
    for part in ("wi", "wi_0", "wi_1"):
        if hasattr(module, part):
            shards.columns(getattr(module, part))
    shards.rows(module.wo)


_OWN_CUTS: Mapping[tuple[str, ...], Callable[[TensorShards, str, Any], None]] = {
    ("c_attn", "c_proj", "split_size"): _cut_gpt2_attention,
    ("c_fc", "c_proj"): _cut_gpt2_mlp,
    ("q", "k", "v", "o", "n_heads"): _cut_t5_attention,
    ("wo", "dropout", "act"): _cut_t5_mlp,
}
"""By the parts that a module has; the first that match."""


def _output_dim(module: nn.Module) -> int:
    """Dimension of a matrix's outputs: transformers' Conv1D has them last."""
    return 1 if hasattr(module, "nf") else 0


def _word(named: Mapping[str, str], name: str) -> str:
    return next((word for pattern, word in named.items() if fnmatchcase(name, pattern)), "")
