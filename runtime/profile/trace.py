"""A training step on fake tensors: blocks and peaks of memory of a model that need not fit.

Under FakeTensorMode on device "cpu", one rank, no ZeRO; what the model sends to CUDA goes to the
CPU too. The longest list of equal blocks is cut to one and to three; every phase grows linearly
with the blocks.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from autoconf_launch.core import Grade, ModelSpec, Precision, TracedPeak

from ..model import (
    Batch,
    BlockList,
    LossFunction,
    MakeOptimizer,
    ModelSource,
    TrainingParts,
    compute_in,
    cuda_as_cpu,
    find_block_lists,
    map_tensors,
    model_loss,
)
from .describe import describe

_FEW, _MORE = 1, 3
_MICRO_BATCHES = (8, 16)  # of fewer samples the gradient of an embedding may be the fullest moment
_CPU = torch.device("cpu")


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """The default optimizer."""
    return torch.optim.AdamW(parameters)


def trace_model(
    model: ModelSource,
    batch: Batch,
    *,
    loss: LossFunction = model_loss,
    make_optimizer: MakeOptimizer = adamw,
    precision: Precision = Precision.FP32,
) -> ModelSpec:
    """Describe a model without computing with it.

    Args:
        model: a function that builds it, called under fake tensors; or a module, left as it is.
        batch: at least one sample; only shapes and types are looked at.
        loss: as ``loss_fn`` of ``initialize``.
        make_optimizer: from trainable parameters to an optimizer.
        precision: format of forward and backward.

    Returns:
        A ModelSpec of grade ``traced`` with the peak of each phase at two micro-batches.

    Raises:
        Exception: whatever the model raises; data-dependent control flow cannot be traced.
    """
    tracer = _Tracer.of(model, batch, loss, make_optimizer, precision)
    with cuda_as_cpu():
        return tracer.spec()


def trace_peaks(model: ModelSource, batch: Batch, parts: TrainingParts) -> tuple[TracedPeak, ...]:
    """Only the peaks of :func:`trace_model`, for a model that was described by a real run."""
    tracer = _Tracer.of(model, batch, parts.loss, parts.make_optimizer, parts.config.precision)
    with cuda_as_cpu():
        return tracer.peaks()


@dataclass(frozen=True, slots=True)
class _Tracer:
    model: nn.Module
    batch: Batch
    mode: FakeTensorMode
    loss: LossFunction
    make_optimizer: MakeOptimizer
    precision: Precision

    @staticmethod
    def of(
        model: ModelSource,
        batch: Batch,
        loss: LossFunction,
        make_optimizer: MakeOptimizer,
        precision: Precision,
    ) -> _Tracer:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fake = _fake_model(model, mode)
        return _Tracer(fake, batch, mode, loss, make_optimizer, precision)

    def spec(self) -> ModelSpec:
        longest = _longest_uniform_list(self.model)
        if longest is None:
            described = self._describe()
        else:
            pieces = longest.pieces
            longest.keep(pieces[:_MORE])
            described = _with_count(self._describe(), longest.name, len(pieces) - _MORE)
            longest.keep(pieces)
        return replace(described, traced_peaks=self.peaks())

    def peaks(self) -> tuple[TracedPeak, ...]:
        longest = _longest_uniform_list(self.model)
        if longest is None:
            return self._peaks_at_all_sizes()
        pieces = longest.pieces
        longest.keep(pieces[:_MORE])
        more = self._peaks_at_all_sizes()
        longest.keep(pieces[:_FEW])
        few = self._peaks_at_all_sizes()
        longest.keep(pieces)
        return _extrapolate(few, more, len(pieces))

    def _describe(self) -> ModelSpec:
        with self.mode:
            return describe(self.model, self._forward, Grade.TRACED).spec

    def _peaks_at_all_sizes(self) -> tuple[TracedPeak, ...]:
        """Peaks of the second step, in which optimizer state is there from the start."""
        with self.mode:
            optimizer = self._stepped_optimizer()
            update = _Update(optimizer.step)
            held = (*self.model.parameters(), *self.model.buffers(), *_states(optimizer))
            return tuple(
                peak for size in _MICRO_BATCHES for peak in self._peaks(size, held, update)
            )

    def _peaks(
        self, micro_batch: int, held: Iterable[Tensor], update: _Update
    ) -> Iterator[TracedPeak]:
        watch, loss = _HeldMemory(held), list[Tensor]()

        def forward() -> None:
            loss.append(self._forward(micro_batch))

        def backward() -> None:
            torch.autograd.backward(loss.pop())

        def both() -> None:
            forward()
            backward()

        phases = (("forward", forward), ("backward", backward), ("accumulation", both))
        for name, run in phases:
            peak_bytes = watch.peak_of(run)
            yield TracedPeak(phase=name, micro_batch=micro_batch, peak_bytes=peak_bytes)
        peak_bytes = update.peak_bytes(watch)
        yield TracedPeak(phase="optimizer", micro_batch=micro_batch, peak_bytes=peak_bytes)
        self.model.zero_grad(set_to_none=True)

    def _stepped_optimizer(self) -> torch.optim.Optimizer:
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = self.make_optimizer(trainable)
        for parameter in trainable:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return optimizer

    def _forward(self, samples: int) -> Tensor:
        with compute_in(self.precision, _CPU):
            return self.loss(self.model, _fake_samples(self.batch, samples))


class _Update:
    """An optimizer step, which is traced once: what it adds does not depend on the samples."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._added_bytes: int | None = None

    def peak_bytes(self, watch: _HeldMemory) -> int:
        before = watch.held_bytes
        if self._added_bytes is None:
            self._added_bytes = watch.peak_of(self._step) - before
        return before + self._added_bytes


class _HeldMemory(TorchDispatchMode):
    """Counts the bytes of living storages on the CPU: of ``held`` and of each result."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self.held_bytes = self._peak_bytes = 0
        for tensor in held:
            self._add(tensor)

    def peak_of(self, run: Callable[[], object]) -> int:
        """The most bytes that are held at a time while ``run`` runs."""
        self._peak_bytes = self.held_bytes
        with self:
            run()
        return self._peak_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        for value in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(value, Tensor):
                self._add(value)
        self._peak_bytes = max(self._peak_bytes, self.held_bytes)
        return result

    def _add(self, tensor: Tensor) -> None:
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                self._add(getattr(tensor, name))
        elif tensor.device.type == "cpu":
            self._count(tensor.untyped_storage())

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        known = self._known.get(key)
        if known is None:
            end = weakref.ref(storage, lambda _: self._forget(key))
            self._known[key] = end, size
            self.held_bytes += size
        elif known[1] != size:
            self._known[key] = known[0], size
            self.held_bytes += size - known[1]

    def _forget(self, key: int) -> None:
        self.held_bytes -= self._known.pop(key)[1]


def _states(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    values = (value for state in optimizer.state.values() for value in state.values())
    return (value for value in values if isinstance(value, Tensor))


def _fake_model(source: ModelSource, mode: FakeTensorMode) -> nn.Module:
    if not isinstance(source, nn.Module):
        with mode, cuda_as_cpu():
            return source()
    with mode:
        fakes: dict[int, Any] = {}
        for tensor in (*source.parameters(), *source.buffers()):
            fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=_CPU)
            is_weight = isinstance(tensor, nn.Parameter)
            fakes[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_weight else fake
        for tensor in _attributes_to_replace(source):
            fakes[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype, device=_CPU)
        return copy.deepcopy(source, fakes)


def _attributes_to_replace(model: nn.Module) -> Iterator[Tensor]:
    """Plain tensors on CUDA, and results of an earlier pass, which cannot be copied."""
    for module in model.modules():
        for value in tree_leaves(vars(module)):
            is_result = isinstance(value, Tensor) and not value.is_leaf
            if is_result or (type(value) is Tensor and value.is_cuda):
                yield value


def _fake_samples(batch: Batch, count: int) -> Batch:
    return map_tensors(
        batch, lambda t: torch.empty((count, *t.shape[1:]), dtype=t.dtype, device=_CPU)
    )


def _longest_uniform_list(model: nn.Module) -> BlockList | None:
    """The longest list worth cutting: more than three blocks of equal weights."""
    uniform = [found for found in find_block_lists(model) if len(_sizes(found)) == 1]
    longest = max(uniform, key=lambda found: len(found.pieces), default=None)
    return longest if longest is not None and len(longest.pieces) > _MORE else None


def _sizes(found: BlockList) -> set[int]:
    return {sum(p.numel() for p in piece.parameters()) for piece in found.pieces}


def _with_count(spec: ModelSpec, name: str, missing: int) -> ModelSpec:
    blocks = tuple(
        replace(block, count=block.count + missing) if block.name == name else block
        for block in spec.blocks
    )
    return replace(spec, blocks=blocks, layers=(spec.layers or 0) + missing)


def _extrapolate(
    few: tuple[TracedPeak, ...], more: tuple[TracedPeak, ...], blocks: int
) -> tuple[TracedPeak, ...]:
    def at(low: int, high: int) -> int:
        return low + (high - low) * (blocks - _FEW) // (_MORE - _FEW)

    return tuple(
        replace(low, peak_bytes=at(low.peak_bytes, high.peak_bytes))
        for low, high in zip(few, more, strict=True)
    )
