"""A forward and backward pass of a script, inspected: pieces, peaks, operations.

The modules called are real or have been made fake before; the pass is the same. Not: when it
begins and ends (``first_forward``).

Works on real tensors and on fake ones, which allocate nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from autoconf_launch.core import (
    BlockSpec,
    FirstForward,
    Grade,
    ModelSpec,
    OperationCost,
    Precision,
    Recompute,
    TracedPeak,
)

from ..model import SampleCounter, flop_counter, is_slice, tensor_bytes
from ..observe import StepWatch, Storages, held_by, unwrapped_model
from .bystanders import storage_key
from .fakes import Fakes

_GATHERS = ("embedding", "index_select", "gather", "index")
"""Operations that read of their first argument no more than they write."""

_KEPT_OF_LSTM = 6
"""Values besides each output: four gates, the cell's state and its tanh."""
_SLACK = 1.02
"""Alive over held, up to which an earlier call has left nothing for a backward pass."""
_CallArguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a call, by position and by name."""


class PhasedStorages(Storages):
    """Storages whose highest sum is taken phase by phase."""

    def next_phase(self) -> int:
        """The highest sum since the last call; the next phase begins with the live memory."""
        peak, self.peak_bytes = self.peak_bytes, self._bytes
        return peak


class PassCosts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at each operation from :meth:`start` on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages = PhasedStorages()
        self._formulas: dict[Any, Any] = dict(flop_counter().flop_registry)
        self._costs: Counter[tuple[float, int]] = Counter()

    def start(self, held: Iterable[Any]) -> None:
        """Look from here on; ``held`` lives already."""
        self.storages.add(held)
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Begin anew with the live memory."""
        self._costs.clear()
        self.storages.next_phase()

    @property
    def operations(self) -> tuple[OperationCost, ...]:
        """Equal ones together, in the order in which they first ran."""
        return tuple(
            OperationCost(flops=flops, moved_bytes=moved, count=count)
            for (flops, moved), count in self._costs.items()
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if func is torch.ops.aten.mkldnn_rnn_layer.default:
            result = _with_gates(result)
        with suppress(Exception):  # a shape that a formula does not know, no storage
            self._look(func, args, named, result)
        return result

    def _look(self, func: Any, args: Any, named: dict[str, Any], result: Any) -> None:
        given = _tensors((args, named))
        made = _tensors(result)
        self.storages.add_made(made, given)
        before = {storage_key(tensor) for tensor in given}
        changes = func._schema.is_mutable
        if not made or (not changes and all(storage_key(tensor) in before for tensor in made)):
            return  # another look at what is there
        name = func._overloadpacket.__name__
        if name.startswith(("empty", "new_empty")):
            return
        formula = self._formulas.get(func._overloadpacket)
        flops = float(formula(*args, **named, out_val=result)) if formula else 0.0
        written = sum(map(tensor_bytes, made))
        read = sum(map(tensor_bytes, given[1:])) + written if name in _GATHERS else 0
        self._costs[flops, written + (read or sum(map(tensor_bytes, given)))] += 1


class FrozenCalls:
    """Costs of calls without gradients, such as of a teacher, besides the call that trains.

    Only calls of the current batch count: earlier calls belong to another batch,
    as do, in a script without loaders, calls of the model that trains.
    """

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._costs: list[tuple[nn.Module, PassCosts]] = []
        self._drawn = False

    def next_batch(self) -> None:
        self._drawn = True
        self._calls.clear()
        self._costs.clear()

    @contextmanager
    def look(self, module: nn.Module) -> Iterator[None]:
        key, costs = id(module), PassCosts()
        self._calls[key] += 1
        if self._is_preparation(key):
            yield
            return
        costs.start(())
        try:
            yield
        finally:
            costs.stop()
            self._costs.append((module, costs))

    def take(self, trained: Iterable[nn.Module]) -> tuple[PassCosts, ...]:
        """All since the last time, besides calls of these modules."""
        weights = {id(weight) for module in trained for weight in module.parameters()}

        def is_evaluation(module: nn.Module) -> bool:
            return not self._drawn and any(id(w) in weights for w in module.parameters())

        found = [
            costs
            for module, costs in self._costs
            if not self._is_preparation(id(module)) and not is_evaluation(module)
        ]
        self._calls.clear()
        self._costs.clear()
        return tuple(found)

    def _is_preparation(self, key: int) -> bool:
        """True if there are so few calls that they rather go through a whole data set."""
        return not self._drawn and self._calls[key] > _MOST_FROZEN_CALLS


_MOST_FROZEN_CALLS = 8
"""The most calls of a frozen model for a batch, in a script without loaders."""


def _with_gates(result: Any) -> Any:
    """An LSTM's layer with its saved values for the backward pass, which fakes omit."""
    given, hidden, cell, kept = result
    if not kept.numel():
        kept = kept.new_empty(_KEPT_OF_LSTM * tensor_bytes(given))
    return given, hidden, cell, kept


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


@dataclass(frozen=True, slots=True)
class OutermostCall:
    """An outermost call: the module, its arguments, how many rows they have."""

    module: nn.Module
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    rows: int


class ForwardBackwardTrace:
    """Trace from the first call of a module that trains."""

    def __init__(self, in_backward: Callable[[], bool], fakes: Fakes | None) -> None:
        self.roots: list[nn.Module] = []
        self.weights: set[int] = set()
        self._in_backward = in_backward
        self._fakes = fakes
        self._costs = PassCosts()
        self._costs.start(())
        self._calls: list[OutermostCall] = []
        self._watches: list[StepWatch] = []
        self._peaks: list[TracedPeak] = []
        self._state_bytes: int | None = None
        self._earlier: tuple[OperationCost, ...] = ()
        self._frozen: tuple[OperationCost, ...] = ()
        self._held = 0
        self._draws: tuple[int, ...] = ()
        self._batches: list[Tensor] = []
        """Arguments of all calls; a slice of a data set as the copy that a device would get."""

    @property
    def samples(self) -> int:
        """Samples of the first call that has any; a loader's if rows are not samples."""
        rows, sizes = self._rows, set(self._draws)
        drawn = min(sizes) if len(sizes) == 1 else 0
        return drawn if rows > drawn > 1 and rows != drawn * len(self._draws) else rows

    @property
    def _rows(self) -> int:
        """Rows of the first call that has any: samples, or the nodes of graphs."""
        return next((call.rows for call in self._calls if call.rows), 1)

    def begins(
        self,
        module: nn.Module,
        given: _CallArguments,
        draws: Sequence[int | None],
        frozen: Sequence[PassCosts] = (),
    ) -> None:
        """An outermost module is called, after batches of ``draws`` samples and ``frozen`` calls.

        Raises:
            TypeError: it cannot be made fake.
        """
        self.weights |= {id(weight) for weight in module.parameters()}
        if self._fakes:
            self._costs.storages.add(self._fakes.take(module))
            self.weights |= {id(weight) for weight in module.parameters()}
        self._costs.storages.add(held_by([module], ()))
        batch_bytes = sum(map(tensor_bytes, _tensors(given)))
        kept = self._costs.storages.alive_bytes - _SLACK * self._held - 2 * batch_bytes
        if self._calls and kept <= 0:
            self._begin_anew()
        for costs in frozen:
            self._costs.storages.adopt(costs.storages)
        if not self._calls:
            self._held = self._costs.storages.alive_bytes
        self._batches += [torch.empty_like(x) if is_slice(x) else x for x in _tensors(given)]
        self._costs.storages.add(self._batches)
        hints = [*filter(None, draws[-1:])]
        if not self._calls:
            self._draws = tuple(filter(None, draws))
            self._earlier = self._frozen = _operations(frozen)
        else:  # they are in the trace
            self._frozen += _operations(frozen)
        rows = SampleCounter().count(*given, hints)
        self._calls.append(OutermostCall(module, *given, rows))
        self._watch(module)

    def backward(self, tensors: Any) -> None:
        self._peak("forward")
        _backward(tensors)
        self._peak("backward")

    def step(self, optimizers: Sequence[Optimizer]) -> None:
        """Try the optimizers' step, twice: the first one makes their state. Only for fakes.

        Raises:
            Exception: whatever an optimizer does that fakes cannot do.
        """
        assert self._fakes
        for optimizer in optimizers:
            self._fakes.take_optimizer(optimizer)
        if not any(group["params"] for one in optimizers for group in one.param_groups):
            raise ValueError("the optimizers have weights of their own, as DeepSpeed's do")
        _plain_steps(optimizers)
        state = _tensors([dict(one) for o in optimizers for one in o.state.values()])
        sizes = {id(tensor): tensor.untyped_storage().nbytes() for tensor in state}
        self._costs.storages.next_phase()
        _plain_steps(optimizers)
        self._state_bytes = sum(sizes.values())
        self._peak("optimizer", less=self._state_bytes)

    def describe(self, frozen: Sequence[PassCosts] = ()) -> FirstForward:
        """All that was seen; ``frozen`` calls came after the last call with gradients."""
        costs, root = self._costs.operations, self.roots[0]
        self._costs.stop()
        if not self._peaks:  # the backward pass as two times the forward one
            costs = tuple(replace(cost, count=3 * cost.count) for cost in costs)
        for watch in self._watches:
            watch.stop()
        peaks = [*self._peaks]
        notes: list[str] = []
        if self._fakes and len(peaks) > 1:
            try:
                peaks += self._at_twice_the_size()
            except Exception as error:
                notes.append(f"Not tried with another micro-batch: {_short(error)}")
        return FirstForward(
            model=self._spec(),
            micro_batch=self.samples,
            fake=self._fakes is not None,
            peaks=tuple(peaks),
            operations=(*self._earlier, *costs),
            frozen_operations=(*self._frozen, *_operations(frozen)),
            backward=bool(self._peaks),
            precision=self._watches[0].precision if self._watches else Precision.FP32,
            recompute=self._watches[0].recompute if self._watches else Recompute.NONE,
            state_bytes=self._state_bytes,
            wrapper=None if unwrapped_model(root) is root else type(root).__name__,
            config=_config(self.roots),
            notes=tuple(notes),
        )

    def _begin_anew(self) -> None:
        self._costs.forget()
        self._calls.clear()
        self._batches.clear()
        for watch in self._watches:
            watch.stop()
        self._watches.clear()
        self.roots.clear()

    def _watch(self, module: nn.Module) -> None:
        own = {id(weight) for weight in module.parameters()}
        if any(own <= {id(w) for w in root.parameters()} for root in self.roots):
            return
        watch = StepWatch(module, (module,), self._in_backward)
        watch.start(())
        self.roots.append(module)
        self._watches.append(watch)

    def _peak(self, phase: str, *, less: int = 0) -> None:
        peak = self._costs.storages.next_phase() - less
        self._peaks.append(TracedPeak(phase=phase, micro_batch=self.samples, peak_bytes=peak))

    def _at_twice_the_size(self) -> list[TracedPeak]:
        """Peaks that grow in the modules, and in the script's use of their outputs.

        The modules are called again with as many samples and with twice as many.
        """
        size = self._rows
        one, two = (_peaks_of(self._fakes, self._calls, size, factor) for factor in (1, 2))
        found = []
        for peak in self._peaks:
            once = one.get(peak.phase, peak.peak_bytes)
            more = two.get(peak.phase, once) - once + max(0, peak.peak_bytes - once)
            grown = peak.peak_bytes + more
            found.append(replace(peak, micro_batch=2 * self.samples, peak_bytes=grown))
        return found

    def _spec(self) -> ModelSpec:
        specs = [watch.pieces.spec(self.samples) for watch in self._watches]
        largest = max(specs, key=lambda spec: spec.parameters)
        blocks: tuple[BlockSpec, ...] = tuple(block for spec in specs for block in spec.blocks)
        note = "" if len(specs) < 2 else f"The script calls {len(specs)} modules by themselves."
        return replace(largest, grade=Grade.TRACED, blocks=blocks, notes=(note,) if note else ())


def _operations(passes: Iterable[PassCosts]) -> tuple[OperationCost, ...]:
    return tuple(cost for one in passes for cost in one.operations)


def _peaks_of(
    fakes: Fakes | None, calls: Sequence[OutermostCall], size: int, factor: int
) -> dict[str, int]:
    assert fakes
    for call in calls:
        for weight in call.module.parameters():
            weight.grad = None
    costs = PassCosts()
    costs.start(held_by([call.module for call in calls], ()))
    try:
        outputs = [_call_with_size(fakes, call, size, factor) for call in calls]
        forward = costs.storages.next_phase()
        _backward([leaf for leaf in tree_leaves(outputs) if _is_loss(leaf)])
        del outputs
        return {"forward": forward, "backward": costs.storages.next_phase()}
    finally:
        costs.stop()


def _call_with_size(fakes: Fakes, call: OutermostCall, size: int, factor: int) -> Any:
    def with_size(value: Any) -> Any:
        if not isinstance(value, Tensor) or size not in value.shape[:2]:
            return value
        place = 0 if value.shape[0] == size else 1
        shape = [*value.shape]
        shape[place] *= factor
        if value.is_floating_point():
            return fakes.empty_like(value, shape).requires_grad_(value.requires_grad)
        return torch.cat([value] * factor, dim=place)

    arguments, named = tree_map(with_size, (call.arguments, call.named))
    result = call.module(*arguments, **named)
    loss = getattr(result, "loss", None)
    return loss if isinstance(loss, Tensor) else result


def _backward(tensors: Any) -> None:
    roots = [t for t in tree_leaves(tensors) if _is_loss(t)]
    gradients = [None if t.numel() == 1 else torch.ones_like(t) for t in roots]
    torch.autograd.backward(roots, gradients)


def _is_loss(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and value.is_floating_point()


def _plain_steps(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        with torch.no_grad():
            optimizer.step()


def _config(roots: Sequence[nn.Module]) -> str | None:
    config = getattr(unwrapped_model(roots[0]), "config", None) if len(roots) == 1 else None
    with suppress(Exception):
        document = config.to_dict() if hasattr(config, "to_dict") else None  # type: ignore[union-attr]
        if isinstance(document, dict) and isinstance(document.get("model_type"), str):
            return json.dumps(document, default=str)
    return None


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
