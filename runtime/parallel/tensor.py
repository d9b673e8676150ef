"""Tensor parallelism: ranks share out the products of one model copy, by the model's own plan.

Norms and what else the plan does not split stay whole, or work on a rank's part of the sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from autoconf_launch.core import ConfigError, DegreeLimits, ResolvedConfig, nearest_known

from ..model import Batch, BlockList, find_block_lists, shared_names, tensors
from .base import Applied, DeviceMeshes, Weights, mesh_degree

COLUMNS, ROWS = "colwise", "rowwise"
"""A rank has some of the outputs, or some of the inputs of a matrix."""
GATHERED_COLUMNS = "colwise_gather_output"
"""Columns whose outputs are gathered on all ranks: a head."""
SUMMED = "replicated_with_grad_allreduce"
"""Each rank has all weights and, as it applies them only to its heads, part of their gradient."""
WORDS = (COLUMNS, ROWS, GATHERED_COLUMNS, SUMMED)
_HEADS = (("num_attention_heads", "attention heads"), ("num_key_value_heads", "key-value heads"))
_SEQUENCE = 1
"""Dimension of the tokens in what goes from block to block."""
_TOLERANCE = 1e-2


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
    """Limits of the tensor degree in a live model, or the reason why nothing can be split."""
    try:
        return read_tensor_plan(model).limits
    except ConfigError as error:
        return DegreeLimits(missing=str(error))


def tensor_words(model: nn.Module) -> dict[str, str]:
    """Names of modules with their words in the plan; empty if there is no valid one."""
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
    """Words for Linear modules; a module with another word in one part stays whole."""
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


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Split the modules in the model's plan; embeddings that share weights share them again.

    Raises:
        ConfigError: the model has no plan, or the degree does not divide a size that it splits.
    """
    mesh = meshes.tensor
    if mesh is None:
        return applied
    model = applied.module
    plan = read_tensor_plan(model)
    obstacle = plan.limits.obstacle(mesh.size())
    if obstacle:
        raise ConfigError(obstacle)
    summed = [name for name, word in plan.words if word == SUMMED]
    parts = {name: word for name, word in plan.words if word != SUMMED}
    tied = shared_names(model)
    if config.layout.sequence_parallel:
        lists = _lists_of(model, plan)
        summed += [_join(one.name, key) for one in lists for key in one.keys]
        styles = _sequence_styles(model, lists, parts, mesh)
    else:
        styles = {name: _style(model, name, word) for name, word in parts.items()}
    parallelize_module(model, mesh, styles, src_data_rank=None)
    _tie_again(model, tied)
    _share_random_state(mesh)
    whole = _WholeGradients(mesh, tuple(_whole_weights(model, summed)))
    return replace(applied, completions=(*applied.completions, whole))


def is_sequence_parallel(module: nn.Module) -> bool:
    """True if the live blocks work on parts of the sequence."""
    return any(
        isinstance(hook, _Scatter)
        for part in module.modules()
        for hook in part._forward_pre_hooks.values()
    )


def tensor_degree(module: nn.Module) -> int:
    """Ranks that the live weights are split over."""
    return mesh_degree(module, "tensor")


def _style(model: nn.Module, name: str, word: str, *, sharded: bool = False) -> ParallelStyle:
    inside = Shard(_SEQUENCE) if sharded else Replicate()
    if word != ROWS:
        return ColwiseParallel(output_layouts=Replicate() if word == GATHERED_COLUMNS else None)
    if isinstance(model.get_submodule(name), nn.Embedding):
        return RowwiseParallel(input_layouts=Replicate())
    return RowwiseParallel(output_layouts=inside)


def _sequence_styles(
    model: nn.Module, lists: tuple[BlockList, ...], parts: dict[str, str], mesh: DeviceMesh
) -> dict[str, ParallelStyle]:
    """Tokens are scattered before a list's first block and gathered after its last.

    Inside, what splits a matrix gets them all: a module of a block as a whole, as its attention
    would take a rank's tokens for all.
    """
    blocks = {_join(one.name, key) for one in lists for key in one.keys}
    styles: dict[str, ParallelStyle] = {}
    for one in lists:
        one.pieces[0].register_forward_pre_hook(_Scatter(mesh), with_kwargs=True)
        one.pieces[-1].register_forward_hook(_gather_output(mesh))
    for name, word in parts.items():
        inside = any(name.startswith(f"{block}.") for block in blocks)
        styles[name] = _style(model, name, word, sharded=inside)
        parent = name.rpartition(".")[0]
        if inside and word != ROWS and parent in blocks:
            styles[name] = ColwiseParallel(input_layouts=Shard(_SEQUENCE))
    for parent in {name.rpartition(".")[0] for name in parts} - blocks:
        if any(parent.startswith(f"{block}.") for block in blocks):
            hook = _Gather(mesh)
            model.get_submodule(parent).register_forward_pre_hook(hook, with_kwargs=True)
    return styles


def _lists_of(model: nn.Module, plan: TensorPlan) -> tuple[BlockList, ...]:
    lists = find_block_lists(model)
    split = tuple(
        one for one in lists if any(name.startswith(f"{one.name}.") for name, _ in plan.words)
    )
    if not split:
        raise ConfigError(
            "parallelism.sequence_parallel is true, but the model's tensor plan splits nothing "
            "in repeated blocks (a ModuleList of at least two modules of one class); remove it."
        )
    return split


class _Scatter:
    before: Placement = Replicate()
    after: Placement = Shard(_SEQUENCE)

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh

    def __call__(self, module: nn.Module, positional: Any, named: dict[str, Any]) -> Any:
        if positional:
            return (self._change(positional[0]), *positional[1:]), named
        first = next(name for name, value in named.items() if isinstance(value, Tensor))
        return positional, {**named, first: self._change(named[first])}

    def _change(self, hidden: Tensor) -> Tensor:
        ranks, tokens = self._mesh.size(), hidden.shape[_SEQUENCE]
        if tokens % ranks and isinstance(self.after, Shard):
            raise ConfigError(
                f"parallelism.sequence_parallel is true, but {ranks} tensor ranks cannot share "
                f"{tokens} tokens equally; use a multiple of {ranks}."
            )
        return _redistribute(hidden, self._mesh, self.before, self.after)


class _Gather(_Scatter):
    before = Shard(_SEQUENCE)
    after = Replicate()


def _gather_output(mesh: DeviceMesh) -> Any:
    def gather(module: nn.Module, arguments: Any, result: Any) -> Any:
        first = result[0] if isinstance(result, tuple) else result
        # FSDP's hooks want no view.
        whole = _redistribute(first, mesh, Shard(_SEQUENCE), Replicate()).clone()
        return (whole, *result[1:]) if isinstance(result, tuple) else whole

    return gather


def _redistribute(hidden: Tensor, mesh: DeviceMesh, before: Placement, after: Placement) -> Tensor:
    spread = DTensor.from_local(hidden, mesh, [before], run_check=False)
    return spread.redistribute(placements=[after]).to_local()


def _tie_again(model: nn.Module, tied: list[list[str]]) -> None:
    for names in tied:
        first, *others = (model.get_parameter(name) for name in names)
        if {getattr(one, "placements", None) for one in (first, *others)} != {
            getattr(first, "placements", None)
        }:
            raise ConfigError(
                f"The tensor plan splits only some of {', '.join(names)}, which share one weight; "
                f"give all of them a word ({ROWS!r} to an embedding, {GATHERED_COLUMNS!r} to a "
                "head), or none."
            )
        for name in names[1:]:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, first)


def _whole_weights(model: nn.Module, modules: Iterable[str]) -> Iterable[str]:
    for module in dict.fromkeys(modules):
        for name, weight in model.get_submodule(module).named_parameters():
            if not isinstance(weight, DTensor):
                yield _join(module, name)


class _WholeGradients:
    """Makes gradients of whole weights equal on the ranks that train one copy of the model."""

    def __init__(self, mesh: DeviceMesh, summed: tuple[str, ...]) -> None:
        self._mesh = mesh
        self._summed = summed
        self._checked = False

    def __call__(self, weights: Weights) -> None:
        """Add up what each rank has a part of; look once whether all others are equal."""
        summed = [weights[name].grad for name in self._summed if name in weights]
        parts = [_local(gradient) for gradient in summed if gradient is not None]
        if parts:
            flat = torch.cat([part.flatten() for part in parts])
            dist.all_reduce(flat, group=self._mesh.get_group())
            wholes = torch.split(flat, [part.numel() for part in parts])
            for part, whole in zip(parts, wholes, strict=True):
                part.copy_(whole.view_as(part))
        if not self._checked:
            self._checked = True
            self._check(weights)

    def _check(self, weights: Weights) -> None:
        gradients = {
            name: weight.grad
            for name, weight in weights.items()
            if weight.grad is not None and not _is_split(weight)
        }
        if not gradients:
            return
        norms = torch.stack([_local(gradient).norm() for gradient in gradients.values()])
        least, most = extremes(norms, (self._mesh,))
        wrong = (most - least > _TOLERANCE * most).nonzero().flatten().tolist()
        if wrong:
            raise ConfigError(
                f"The gradient of {list(gradients)[wrong[0]]} differs between tensor ranks: the "
                "model's tensor plan leaves it whole between columns and rows. Give it the word "
                f"{SUMMED!r} in tensor_plan, or set parallelism.tensor to 1."
            )


def _share_random_state(mesh: DeviceMesh) -> None:
    """Dropout of unsplit values drops the same on all ranks."""
    accelerator = mesh.device_type == "cuda"
    state = (torch.cuda.get_rng_state() if accelerator else torch.get_rng_state()).clone()
    shared = state.to(mesh.device_type)
    dist.broadcast(shared, group=mesh.get_group(), group_src=0)
    (torch.cuda.set_rng_state if accelerator else torch.set_rng_state)(shared.cpu())


def _is_split(weight: Tensor) -> bool:
    if not isinstance(weight, DTensor):
        return False
    names = weight.device_mesh.mesh_dim_names or ()
    return any(
        name == "tensor" and not placement.is_replicate()
        for name, placement in zip(names, weight.placements, strict=True)
    )


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


class SameBatch:
    """Compares the first step's batch over the ranks of a model copy."""

    def __init__(self, meshes: DeviceMeshes) -> None:
        along = (meshes.pipeline, meshes.context, meshes.tensor)
        self._meshes = tuple(mesh for mesh in along if mesh is not None)
        self._checked = not self._meshes

    def __call__(self, batch: Batch) -> None:
        """Look once.

        Raises:
            ConfigError: they differ.
        """
        if self._checked:
            return
        self._checked = True
        parts = tensors(batch)
        digests = torch.stack([_digest(part) for part in parts]) if parts else torch.zeros(1)
        least, most = extremes(digests, self._meshes)
        if not torch.equal(least, most):
            raise ConfigError(
                "Ranks of one model copy were given different batches; load the samples of "
                "engine.share from each global batch, not those of engine.rank."
            )


def extremes(values: Tensor, meshes: Iterable[DeviceMesh]) -> tuple[Tensor, Tensor]:
    """The least and the largest over the ranks along all of these dimensions."""
    both = torch.cat((values, -values))
    for mesh in meshes:
        both = both.to(mesh.device_type)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=mesh.get_group())
    most, least = both.chunk(2)
    return -least, most


def _digest(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten().double()
    return (flat * torch.arange(1, flat.numel() + 1, device=flat.device)).sum()
