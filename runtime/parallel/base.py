"""The mesh of all ranks, and the form of a model on it under each kind of parallelism."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from autoconf_launch.core import RUNTIME_KNOBS, KnobValue, Layout, ResolvedConfig

from ..model import Batch, LossFunction
from ..rank import StepCutter
from ..stages import Stage

PIPELINE, REPLICATE, SHARD = "pipeline", "replicate", "shard"
CONTEXT, TENSOR = "context", "tensor"
EXPERT, EXPERT_REPLICATE, EXPERT_SHARD = "expert", "expert_replicate", "expert_shard"
"""Data ranks that have each expert once together, and those with equal experts."""
AroundMicroBatch: TypeAlias = Callable[[bool], AbstractContextManager[object]]
"""From "is it the last of the step?" to a context for forward and backward."""
Extras: TypeAlias = tuple[tuple[str, KnobValue], ...]
Weights: TypeAlias = Mapping[str, nn.Parameter]
"""This rank's, by the names that they have in the model as it was built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMeshes:
    """Dimensions of ``world`` are in the order of the names above; those not needed are missing.

    Context ranks average gradients as data ranks do, so that they count among replicate and shard.

    Attributes:
        world: all ranks.
        context: ranks that share out the tokens of each sample.
        experts: all ranks again, with data ranks taken apart; None if each has all experts.
    """

    world: DeviceMesh
    context: DeviceMesh | None = None
    experts: DeviceMesh | None = None

    @property
    def is_data_only(self) -> bool:
        """True if each rank, or each group that shards, holds all of the model."""
        return self.experts is None and not {PIPELINE, TENSOR} & set(_names(self.world))

    @property
    def data(self) -> DeviceMesh:
        """Ranks that train on different samples or tokens; FSDP shards and copies over them."""
        names = tuple(name for name in (REPLICATE, SHARD) if name in _names(self.world))
        return self.world if self.is_data_only else self.world[names]

    @property
    def pipeline(self) -> DeviceMesh | None:
        """Ranks that have a part of the blocks each."""
        return self._along(PIPELINE)

    @property
    def tensor(self) -> DeviceMesh | None:
        """Ranks that share out the products of one model copy."""
        return self._along(TENSOR)

    @property
    def expert(self) -> DeviceMesh | None:
        """Data ranks that have a part of the experts each."""
        return self.experts[EXPERT] if self.experts else None

    @property
    def expert_data(self) -> DeviceMesh | None:
        """Data ranks with the same experts; FSDP shards and copies experts over them."""
        return self.experts[EXPERT_REPLICATE, EXPERT_SHARD] if self.experts else None

    def _along(self, name: str) -> DeviceMesh | None:
        return self.world[name] if name in _names(self.world) else None


def make_meshes(
    device: torch.device, layout: Layout, extras: tuple[tuple[str, KnobValue], ...] = ()
) -> DeviceMeshes:
    """A mesh of all ranks of the process group; ``extras`` may say how many ranks shard."""
    degrees = {PIPELINE: layout.pipeline_parallel, TENSOR: layout.tensor_parallel}
    averaging, expert = layout.data_parallel * layout.context_parallel, layout.expert_parallel
    data = {SHARD: averaging}
    shards = dict(extras).get("shard_ranks")
    if type(shards) is int:
        data = {REPLICATE: averaging // shards, SHARD: shards}
    if layout.zero_stage == 0 and max(*degrees.values(), expert) > 1:
        data = {REPLICATE: averaging, SHARD: 1}  # FSDP with whole weights
    return DeviceMeshes(
        world=_mesh(device, degrees, data),
        context=_context_mesh(device, layout),
        experts=None if expert == 1 else _mesh(device, degrees, _expert_view(data, expert)),
    )


def _mesh(device: torch.device, degrees: dict[str, int], data: dict[str, int]) -> DeviceMesh:
    sizes = {
        name: size
        for name, size in {PIPELINE: 1, **data, **degrees}.items()
        if size > 1 or name in data
    }
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def _context_mesh(device: torch.device, layout: Layout) -> DeviceMesh | None:
    if layout.context_parallel == 1:
        return None
    outer = layout.pipeline_parallel * layout.data_parallel
    sizes = (outer, layout.context_parallel, layout.tensor_parallel)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("outer", CONTEXT, TENSOR))
    return mesh[CONTEXT]


def _expert_view(data: dict[str, int], expert: int) -> dict[str, int]:
    """Weights of an expert are on as many ranks as other weights, its group included."""
    equal = math.prod(data.values()) // expert
    shards = math.gcd(equal, max(1, data[SHARD] // expert))
    return {EXPERT_REPLICATE: equal // shards, EXPERT_SHARD: shards, EXPERT: expert}


def copy_weights(module: nn.Module, mesh: DeviceMesh) -> None:
    """All ranks of the process group get the weights and buffers of rank 0."""
    if mesh.size() == 1:
        return
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor, src=0)


def mesh_degree(module: nn.Module, *names: str) -> int:
    """Ranks along these dimensions, as the live weights have them; 1 if none has."""
    sizes = dict.fromkeys(names, 1)
    for weight in module.parameters():
        mesh = getattr(weight, "device_mesh", None)
        if mesh is not None:
            known = _names(mesh)
            sizes |= {name: mesh.size(known.index(name)) for name in names if name in known}
    return math.prod(sizes.values())


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or ()


def knob_value(config: ResolvedConfig, name: str) -> Any:
    """The value of a knob in a configuration, else its default."""
    return dict(config.extras).get(name, RUNTIME_KNOBS[name].default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A weight or buffer of the model and the rank along a pipeline that has it."""

    rank: int
    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A model made ready for its steps.

    Attributes:
        module: the module that the step calls.
        around: contexts of each micro-batch.
        checks: look at a step's batch first, or raise a ConfigError.
        rehearse: before the first step, given its batch and a function that evaluates one.
        wrap_loss: from the loss of a micro-batch to the loss that a rank computes.
        completions: changes of gradients after the last backward pass, before they are used.
        stages: stages of a pipeline that this rank has, which ``module`` then holds.
        along: the pipeline's ranks.
        owners: all weights and buffers of a pipeline's model, by name.
        copies: weights that are another stage's too, with the name that they have there.
    """

    module: nn.Module
    stages: tuple[Stage, ...] = ()
    along: DeviceMesh | None = None
    owners: Mapping[str, Owned] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    around: tuple[AroundMicroBatch, ...] = ()
    checks: tuple[Callable[[Batch], None], ...] = ()
    rehearse: Callable[[Batch, Callable[[Batch], Tensor]], None] | None = None
    wrap_loss: Callable[[LossFunction], LossFunction] | None = None
    completions: tuple[Callable[[Weights], None], ...] = ()

    @property
    def roots(self) -> tuple[nn.Module, ...]:
        """The callable parts: the module, or each stage."""
        return self.stages or (self.module,)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """The modules whose weights have the names of the model as it was built."""
        if self.stages:
            return tuple(stage.model for stage in self.stages)
        module = self.module
        return (module.module if isinstance(module, DistributedDataParallel) else module,)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Context of forward and backward of a micro-batch, perhaps the last of its step."""
        with ExitStack() as stack:
            for around in self.around:
                stack.enter_context(around(last))
            yield

    def weights(self) -> dict[str, nn.Parameter]:
        """Weights of this rank, trained or not."""
        return {n: weight for model in self.models for n, weight in model.named_parameters()}


class Passes(Protocol):
    """Makes a step's micro-batches: a loop over them, or the schedule of a pipeline.

    The mean of the losses over all ranks is the loss of the global batch.
    """

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        """Forward and backward passes of a rank's share, with ``scale`` times the gradients.

        Returns their loss; ``cutter`` may end the step before its last micro-batch.
        """

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss of a rank's share, by forward passes."""
