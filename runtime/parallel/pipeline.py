"""Pipeline parallelism: ranks have a part of the blocks each and pass hidden states on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from autoconf_launch.core import (
    PIPELINE_SCHEDULE,
    ConfigError,
    Layout,
    ResolvedConfig,
    even_pipeline_split,
    pipeline_schedule,
    stages_obstacle,
)

from ..model import Batch, TrainingParts, compute_in, split, tensors, to_device
from ..rank import PASSES, Ranks, StepCutter
from ..stages import Stage, blocks_to_cut, find_places, make_stages
from .base import PIPELINE, Applied, DeviceMeshes, Extras, Owned, Weights

_CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
}
_NAMES = {name: kind for kind, name in _CLASSES.items()}


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Leave this rank its stages; an embedding and a head that are one weight stay equal.

    Raises:
        ConfigError: the model cannot be cut into these stages.
    """
    mesh = meshes.pipeline
    if mesh is None:
        return applied
    layout, rank = config.layout, mesh.get_local_rank()
    count = layout.pipeline_parallel * layout.virtual_pipeline
    places = find_places(applied.module, _counts(applied.module, layout))
    own = tuple(range(rank, count, layout.pipeline_parallel))
    owners = {
        name: Owned(rank=places.stage_of(name) % mesh.size(), shape=held.shape, dtype=held.dtype)
        for name, held in applied.module.state_dict().items()
    }
    stages = make_stages(applied.module, places, own)
    applied = replace(applied, module=RankStages(stages), stages=stages, along=mesh, owners=owners)
    if places.tied is None:
        return applied
    ends = _group_of_ends(meshes.world)
    first, last = places.tied
    if rank not in (0, layout.pipeline_parallel - 1):
        return applied
    share: Callable[[Weights], None] = _SharedGradient(last if rank else first, ends)
    copies = {last: first} if rank else {}
    return replace(applied, completions=(*applied.completions, share), copies=copies)


def _counts(model: nn.Module, layout: Layout) -> tuple[int, ...]:
    blocks = len(blocks_to_cut(model).keys)
    obstacle = stages_obstacle(layout, blocks)
    if obstacle is not None:
        raise ConfigError(obstacle)
    stages = layout.pipeline_parallel * layout.virtual_pipeline
    return layout.pipeline_split or even_pipeline_split(blocks, stages)


class RankStages(nn.Module):
    """A rank's stages; no list, so that they are not taken for blocks."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        super().__init__()
        for stage in stages:
            self.add_module(str(stage.index), stage)


class _SharedGradient:
    """Adds up the gradients of one weight that the first and the last stage have."""

    def __init__(self, name: str, group: ProcessGroup) -> None:
        self._name, self._group = name, group

    def __call__(self, weights: Weights) -> None:
        weight = weights[self._name]
        if not weight.requires_grad:
            return
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        if isinstance(weight, DTensor) and isinstance(weight.grad, DTensor):
            weight.grad = weight.grad.redistribute(placements=weight.placements)
        gradient: Any = weight.grad
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        dist.all_reduce(part, group=self._group)


def _group_of_ends(world: DeviceMesh) -> ProcessGroup:
    """This rank's group of first and last stage; all ranks make all groups."""
    ranks = world.mesh.movedim((world.mesh_dim_names or ()).index(PIPELINE), -1)
    ends = ranks.reshape(-1, ranks.shape[-1])[:, [0, -1]].tolist()
    groups = [dist.new_group(pair) for pair in ends]
    mine: list[ProcessGroup] = [
        g for pair, g in zip(ends, groups, strict=True) if dist.get_rank() in pair
    ]
    return (mine or groups)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPipeline:
    """The pipeline that ran; ``split`` has the blocks of each stage."""

    ranks: int
    stages_each: int
    schedule: str
    split: tuple[int, ...]

    @property
    def extras(self) -> Extras:
        """The schedule as a knob."""
        return ((PIPELINE_SCHEDULE[1], self.schedule),)


class Pipeline:
    """Passes of a rank that has stages of a pipeline, in the order of a schedule."""

    def __init__(
        self,
        applied: Applied,
        recipe: TrainingParts,
        ranks: Ranks,
        lap: Callable[[str], None],
        after_forward: Callable[[], None],
    ) -> None:
        self._applied, self._stages = applied, applied.stages
        assert applied.along is not None
        self._mesh = applied.along
        self._recipe = recipe
        self._device = ranks.device
        self._layout = recipe.config.layout
        self._data_rank = self._layout.data_rank(ranks.rank)
        self._lap = lap
        self._micro_batches: list[Batch] = []
        self._weight = 1.0
        self._made: dict[bool, tuple[object, Any]] = {}
        for stage in self._stages:
            stage.loss, stage.after_forward = partial(self._loss, stage), after_forward

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        is_first = True not in self._made
        weight = self._layout.loss_weight(self._data_rank)
        self._weight = scale * weight / self._layout.accumulation
        schedule = self._prepare(batch, trains=True)
        with self._applied.micro_batch(last=True):
            self._run(schedule.step)
        if is_first:
            for stage in self._stages:
                stage.require_unused_copies()
        self._lap(PASSES)
        return self._mean_loss()

    def evaluate(self, batch: Batch) -> Tensor:
        schedule = self._prepare(batch, trains=False)
        self._run(schedule.eval)
        return self._mean_loss()

    def look(self) -> SeenPipeline:
        """The pipeline that ran, by its live stages and schedule; call it on all ranks."""
        _, schedule = self._made[True]
        counts = torch.zeros(self._stages[0].count, dtype=torch.int64, device=self._device)
        for stage in self._stages:
            counts[stage.index] = len(stage.blocks.pieces)
        dist.all_reduce(counts, group=self._mesh.get_group())
        return SeenPipeline(
            ranks=self._mesh.size(),
            stages_each=len(self._stages),
            schedule=_NAMES[type(schedule).__name__],
            split=tuple(counts.tolist()),
        )

    def _prepare(self, batch: Batch, *, trains: bool) -> Any:
        """A schedule whose buffers have the batch's shapes."""
        micro, count = self._layout.micro_batch_of(self._data_rank), self._layout.accumulation
        self._micro_batches = list(split(batch, micro_batch=micro, accumulation=count))
        shapes = tuple(tensor.shape for tensor in tensors(batch))
        if trains not in self._made or self._made[trains][0] != shapes:
            self._made[trains] = (shapes, self._schedule(trains=trains))
        return self._made[trains][1]

    def _schedule(self, *, trains: bool) -> Any:
        from torch.distributed.pipelining import PipelineStage, schedules

        config = self._recipe.config
        kind = pipeline_schedule(config.layout, config.extras)
        if not trains and len(self._stages) == 1:
            kind = "gpipe"
        group = self._mesh.get_group()
        stages: Any = [
            PipelineStage(stage, stage.index, stage.count, self._device, group=group)
            for stage in self._stages
        ]
        make = getattr(schedules, _CLASSES[kind])
        return make(
            stages if len(stages) > 1 else stages[0],
            self._recipe.config.layout.accumulation,
            loss_fn=lambda loss, target: loss.reshape(()) * self._weight,
            scale_grads=False,
        )

    def _run(self, go: Callable[..., object]) -> None:
        """Micro-batches travel by number; the first stage receives nothing but must be given."""
        count = len(self._micro_batches)
        has_first, has_last = self._stages[0].index == 0, self._stages[-1].is_last
        placeholder = (torch.zeros(count, 1, device=self._device),) if has_first else ()
        target = torch.zeros(count, device=self._device) if has_last else None
        go(*placeholder, target=target, which=torch.arange(count), return_outputs=False)

    def _loss(self, stage: Stage, number: int) -> Tensor:
        micro_batch = to_device(self._micro_batches[number], self._device)
        with compute_in(self._recipe.config.precision, self._device):
            return self._recipe.loss(stage.model, micro_batch)

    def _mean_loss(self) -> Tensor:
        last = self._stages[-1]
        if not last.is_last:
            return torch.zeros((), device=self._device)
        losses = [last.losses[number] for number in range(len(self._micro_batches))]
        weight = self._layout.loss_weight(self._data_rank) * self._mesh.size()
        return torch.stack(losses).mean() * weight


def gather_weights(
    mine: dict[str, Tensor], owners: Mapping[str, Owned], along: DeviceMesh
) -> dict[str, Tensor]:
    """The weights of all stages, in their order in the model, on the first rank along a pipeline.

    They travel through memory of the device, one after the other.
    """
    group, whole = along.get_group(), {}
    rank = along.get_local_rank()
    for name, owned in owners.items():
        if rank == owned.rank == 0:
            whole[name] = mine[name]
        elif rank == owned.rank:
            dist.send(mine[name].to(along.device_type), group=group, group_dst=0)
        elif rank == 0:
            tensor = torch.empty(owned.shape, dtype=owned.dtype, device=along.device_type)
            dist.recv(tensor, group=group, group_src=owned.rank)
            whole[name] = tensor.cpu()
    return whole
