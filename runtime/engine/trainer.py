"""An optimizer step, its gradients and update; and a look at which strategy really runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autoconf_launch.core import (
    AppliedStrategy,
    Layout,
    even_pipeline_split,
)

from ..model import (
    Batch,
    LossScale,
    TrainingParts,
    base_learning_rate,
    build_model,
    build_schedule,
    compute_in,
    evaluation_mode,
    precision_of,
    repeated_blocks,
    split,
    to_device,
)
from ..parallel import (
    REPLICATE,
    SHARD,
    Applied,
    LateReduction,
    Passes,
    Pipeline,
    context_degree,
    expert_degree,
    found_extras,
    is_sequence_parallel,
    make_meshes,
    mesh_degree,
    parallelize,
    recompute_of_blocks,
    shard_optimizer,
    tensor_degree,
)
from ..rank import BACKWARD, FORWARD, UPDATE, PhaseClock, Ranks, StepCutter
from .checkpoints import Trained

_EPSILON = 1e-6
"""Keeps the clipping factor finite, as in torch.nn.utils.clip_grad_norm_."""


class Trainer:
    """Builds and lays out the model, then trains it step by step.

    ``clock`` takes every step apart, which slows it.
    """

    def __init__(
        self, recipe: TrainingParts, ranks: Ranks, clock: PhaseClock | None = None
    ) -> None:
        self._lap: Callable[[str], None] = clock.lap if clock else _no_lap
        self._config = recipe.config
        self._ranks = ranks
        meshes = make_meshes(ranks.device, recipe.config.layout, recipe.config.extras)
        model = build_model(recipe.model, ranks.device)
        self._laid_out = parallelize(model, meshes, recipe.config)
        if self._laid_out.wrap_loss is not None:
            recipe = replace(recipe, loss=self._laid_out.wrap_loss(recipe.loss))
        self._observer = Observer(self._laid_out)
        make_passes = Pipeline if self._laid_out.stages else Accumulation
        self._passes: Passes = make_passes(
            self._laid_out, recipe, ranks, self._lap, self._observer.after_forward
        )
        weights = self._weights = self._laid_out.weights()
        self._parameters = [weight for weight in weights.values() if weight.requires_grad]
        optimizer = recipe.make_optimizer(self._parameters)
        self._optimizer = shard_optimizer(optimizer, meshes, recipe.config)
        self._schedule = build_schedule(recipe.config.scheduler, self._optimizer)
        self._scale = LossScale(recipe.config)
        self._applied: AppliedStrategy | None = None

    @property
    def module(self) -> nn.Module:
        return self._laid_out.module

    @property
    def applied(self) -> AppliedStrategy | None:
        return self._applied

    @property
    def samples_per_step(self) -> int:
        layout = self._config.layout
        return layout.samples_of(layout.data_rank(self._ranks.rank))

    @property
    def counted_samples(self) -> int:
        """Samples that no other rank reports: ranks of one model copy see the same."""
        layout = self._config.layout
        of_one_stage = layout.world_size // layout.pipeline_parallel
        inner = layout.tensor_parallel * layout.context_parallel
        is_first = self._ranks.rank < of_one_stage and self._ranks.rank % inner == 0
        return self.samples_per_step if is_first else 0

    @property
    def micro_batches(self) -> int:
        return self._config.layout.accumulation

    @property
    def can_be_cut(self) -> bool:
        """True if a step may end before its last micro-batch; a pipeline's overlap."""
        return not self._laid_out.stages

    @property
    def trained(self) -> Trained:
        return Trained(
            model=self._laid_out,
            optimizer=self._optimizer,
            schedule=self._schedule,
            scale=self._scale,
        )

    def step(self, batch: Batch) -> Tensor:
        """Mean loss over the global batch, after the update; see :meth:`.engine.Engine.step`."""
        return self._mean_over_ranks(self._step(batch))

    def step_and_agree(
        self, batch: Batch, asks: Callable[[], bool], cutter: StepCutter | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss after the update, and above 0 if any rank asks, in one all-reduce.

        Args:
            batch: of the whole step.
            asks: called once the update is done.
            cutter: may end the step before its last micro-batch.
        """
        loss = self._step(batch, cutter)
        both = self._mean_over_ranks(torch.stack((loss, torch.full_like(loss, float(asks())))))
        return both[0], both[1]

    def evaluate(self, batch: Batch) -> Tensor:
        """Mean loss over a global batch; see :meth:`.engine.Engine.evaluate`."""
        with evaluation_mode(self.module), torch.no_grad():
            self._check(batch)
            return self._mean_over_ranks(self._passes.evaluate(batch))

    def _check(self, batch: Batch) -> None:
        for check in self._laid_out.checks:
            check(batch)

    def _step(self, batch: Batch, cutter: StepCutter | None = None) -> Tensor:
        self._check(batch)
        rehearse = self._laid_out.rehearse
        if self._applied is None and rehearse is not None:
            with evaluation_mode(self.module), torch.no_grad():
                rehearse(batch, self._passes.evaluate)
        loss = self._passes.train(batch, self._scale.value, cutter)
        for complete in self._laid_out.completions:
            complete(self._weights)
        self._update()
        if self._applied is None:
            self._applied = self._observer.strategy(
                self._passes, self._optimizer, self._config.layout
            )
        return loss

    def _update(self) -> None:
        if self._prepare_gradients():
            self._optimizer.step()
            if self._schedule is not None:
                self._schedule.advance()
        self._optimizer.zero_grad(set_to_none=True)
        self._lap(UPDATE)

    def _prepare_gradients(self) -> bool:
        """Undo the loss scale and clip; False if the step must be skipped."""
        limit = self._config.gradient_clipping
        if not limit and not self._scale.active:
            return True
        unscaled = 1.0 / self._scale.value
        norm = self._norm() * unscaled
        if self._scale.active and not self._scale.admits(norm):
            return False
        clip = clipping_factor(norm, limit) if limit else torch.ones_like(norm)
        multiply(self._parameters, clip * unscaled)
        return True

    def _norm(self) -> Tensor:
        """The norm over all stages; a weight that two of them have counts once."""
        copies, along = self._laid_out.copies, self._laid_out.along
        if along is None:
            return global_norm(self._parameters)
        own = [w for n, w in self._weights.items() if w.requires_grad and n not in copies]
        return global_norm(own, along.get_group())

    def _mean_over_ranks(self, values: Tensor) -> Tensor:
        if self._ranks.world_size > 1:
            dist.all_reduce(values)
        return values / self._ranks.world_size


def _no_lap(phase: str) -> None:
    """Ignore the end of a phase, if no clock takes steps apart."""


class Accumulation:
    """Passes of a rank that computes its micro-batches from end to end."""

    def __init__(
        self,
        applied: Applied,
        recipe: TrainingParts,
        ranks: Ranks,
        lap: Callable[[str], None],
        after_forward: Callable[[], None],
    ) -> None:
        self._applied = applied
        self._loss = recipe.loss
        self._config = recipe.config
        self._device = ranks.device
        layout = recipe.config.layout
        data_rank = layout.data_rank(ranks.rank)
        self._micro_batch = layout.micro_batch_of(data_rank)
        self._weight = layout.loss_weight(data_rank)
        self._lap = lap
        self._after_forward = after_forward

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        accumulation = self._config.layout.accumulation
        weight = scale * self._weight / accumulation
        losses: list[Tensor] = []
        for micro_batch in self._split(batch):
            last = cutter.last() if cutter else accumulation
            with self._applied.around(len(losses) == last - 1):
                losses.append(self._forward_backward(micro_batch, weight))
            if cutter:
                cutter.end_micro_batch()
            if len(losses) == last:
                break
        return torch.stack(losses).mean() * self._weight

    def evaluate(self, batch: Batch) -> Tensor:
        losses = [self._forward(part).float() for part in self._split(batch)]
        return torch.stack(losses).mean() * self._weight

    def _split(self, batch: Batch) -> Iterator[Batch]:
        accumulation = self._config.layout.accumulation
        return split(batch, micro_batch=self._micro_batch, accumulation=accumulation)

    def _forward(self, micro_batch: Batch) -> Tensor:
        with compute_in(self._config.precision, self._device):
            return self._loss(self._applied.module, to_device(micro_batch, self._device))

    def _forward_backward(self, micro_batch: Batch, weight: float) -> Tensor:
        loss = self._forward(micro_batch)
        self._after_forward()
        self._lap(FORWARD)
        torch.autograd.backward(loss * weight)
        self._lap(BACKWARD)
        return loss.detach().float()


def global_norm(parameters: Iterable[Tensor], stages: ProcessGroup | None = None) -> Tensor:
    """L2 norm of the whole model's gradient, the same on every rank; no wait for the device.

    Weights are added up over the dimensions of the mesh that they are split over, group by group,
    then over the ranks of a pipeline, which must each give theirs.
    """
    parameters = list(parameters)
    groups: dict[tuple[ProcessGroup, ...], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            part, splitters = _part(parameter.grad)
            groups.setdefault(splitters, []).append(part)
    squared = [_sum_of_squares(parts, splitters) for splitters, parts in groups.items()]
    total = torch.nn.utils.get_total_norm([]) if not squared else sum(squared[1:], squared[0])
    if stages is not None:
        total = total.to(parameters[0].device) if parameters else total
        dist.all_reduce(total, group=stages)
    return total.sqrt()


def _part(gradient: Tensor) -> tuple[Tensor, tuple[ProcessGroup, ...]]:
    """This rank's part and the groups whose ranks have the others; equal copies count once."""
    if not isinstance(gradient, DTensor):
        return gradient, ()
    if any(placement.is_partial() for placement in gradient.placements):
        whole = [Replicate() if p.is_partial() else p for p in gradient.placements]
        gradient = gradient.redistribute(placements=whole)
    mesh = gradient.device_mesh
    split = [i for i, placement in enumerate(gradient.placements) if not placement.is_replicate()]
    return gradient.to_local(), tuple(mesh.get_group(i) for i in split if mesh.size(i) > 1)


def _sum_of_squares(parts: list[Tensor], splitters: tuple[ProcessGroup, ...]) -> Tensor:
    squared = torch.nn.utils.get_total_norm(parts).square()
    for group in splitters:
        dist.all_reduce(squared, group=group)
    return squared


def clipping_factor(norm: Tensor, limit: float) -> Tensor:
    """Factor that scales gradients of norm ``norm`` down to ``limit`` at most."""
    return (limit / (norm + _EPSILON)).clamp(max=1.0)


def multiply(parameters: Iterable[Tensor], factor: Tensor | float) -> None:
    """Multiply all gradients in place."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    if local:
        torch._foreach_mul_(local, factor)


class Observer:
    """Watches one block (or a model without blocks) through the first forward pass."""

    def __init__(self, applied: Applied) -> None:
        self._laid_out = applied
        self._blocks = repeated_blocks(applied.module)
        self._watched = self._blocks[0] if self._blocks else applied.module
        self._hook = self._watched.register_forward_pre_hook(self._before_forward)
        self._compute: torch.dtype = torch.float32
        self._whole_after_forward: bool | None = None

    def _before_forward(self, module: nn.Module, arguments: tuple[object, ...]) -> None:
        self._hook.remove()
        device = next(module.parameters()).device.type
        if torch.is_autocast_enabled(device):
            self._compute = torch.get_autocast_dtype(device)
        else:
            self._compute = next(module.parameters()).dtype

    def after_forward(self) -> None:
        """Look once whether the block's weights stay whole until the backward pass."""
        if self._whole_after_forward is None:
            self._whole_after_forward = not _is_sharded(self._watched)

    def strategy(self, passes: Passes, optimizer: Optimizer, layout: Layout) -> AppliedStrategy:
        """The strategy that runs; call it on all ranks, between steps, after the first one.

        ``layout`` says the batch split, which the model does not show.
        """
        module = self._laid_out.module
        recompute, layers = recompute_of_blocks(self._blocks)
        stage = self._zero_stage(optimizer)
        pipeline = passes.look() if isinstance(passes, Pipeline) else None
        schedule = pipeline.extras if pipeline else ()
        extras = found_extras(self._laid_out.roots[0], optimizer, stage)
        return AppliedStrategy(
            zero_stage=stage,
            data_parallel=_averaging_ranks(module) // context_degree(module),
            tensor_parallel=tensor_degree(module),
            context_parallel=context_degree(module),
            expert_parallel=expert_degree(module),
            sequence_parallel=is_sequence_parallel(module),
            pipeline_parallel=pipeline.ranks if pipeline else 1,
            virtual_pipeline=pipeline.stages_each if pipeline else 1,
            pipeline_split=_split_seen(pipeline.split, layout) if pipeline else None,
            micro_batch=layout.micro_batch,
            micro_batch_split=layout.micro_batch_split,
            accumulation=layout.accumulation,
            precision=precision_of(self._compute),
            recompute=recompute,
            description=self._describe(module, optimizer),
            extras=(*schedule, *layers, *extras),
            learning_rate=base_learning_rate((optimizer,)),
            optimizer=type(getattr(optimizer, "optim", optimizer)).__name__,
        )

    def _zero_stage(self, optimizer: Optimizer) -> int:
        root = self._laid_out.roots[0]
        if isinstance(root, FSDPModule):
            if isinstance(self._laid_out.around, LateReduction):
                shards, data = mesh_degree(root, SHARD), _averaging_ranks(root)
                return 0 if shards == 1 < data else 1
            return 2 if self._whole_after_forward else 3
        return 1 if type(optimizer).__name__ == "ZeroRedundancyOptimizer" else 0

    def _describe(self, module: nn.Module, optimizer: Optimizer) -> str:
        inner = getattr(optimizer, "optim", optimizer)
        shards = f", state in {type(optimizer).__name__}" if inner is not optimizer else ""
        return (
            f"{type(module).__name__} with {len(self._blocks)} repeated blocks, computes in "
            f"{str(self._compute).removeprefix('torch.')}, {type(inner).__name__}{shards}"
        )


def _split_seen(split: tuple[int, ...], layout: Layout) -> tuple[int, ...] | None:
    """None for an even split that was not requested."""
    is_even = split == even_pipeline_split(sum(split), len(split))
    return None if is_even and layout.pipeline_split is None else split


def _is_sharded(module: nn.Module) -> bool:
    """True if weights are in shards of FSDP; a tensor rank's part counts as whole."""
    return any(
        isinstance(weight, DTensor) and SHARD in (weight.device_mesh.mesh_dim_names or ())
        for weight in module.parameters()
    )


def _averaging_ranks(module: nn.Module) -> int:
    if isinstance(module, DistributedDataParallel):
        return int(module.process_group.size())
    return mesh_degree(module, REPLICATE, SHARD)
