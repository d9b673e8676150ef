"""An inspected step, never timed, seen operation by operation and module by module.

Gives FLOPs, storages on CPU, the model's pieces, the format that layers compute in, and what is
computed again in the backward pass. Not used under torch.compile, which would compile anew.
FLOPs are counted as torch's own counter does, attention on CPU included, but a formula that does
not know a call counts nothing instead of breaking it. A launch whose ranks exchange nothing, so
that each trains a separate model, is detected, too.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from autoconf_launch.core import Precision, Recompute

from ..model import SharedByCopies, flop_counter, precision_of
from .pieces import Pieces

_SELECTIVE_BELOW = 0.35
"""Share of the forward pass's FLOPs: full recomputation repeats nearly all matrix products."""
_OTHER_MEANS = (
    "horovod",
    "mpi4py",
    "byteps",
    "bagua",
    "hivemind",
    "smdistributed",
    "torch_xla",
    "torch.distributed.pipelining",
)
"""Packages that exchange without collectives of torch's process groups."""
_ON_CPU_IF_ASKED = ("accelerate", "transformers")


class StepWatch(SharedByCopies):
    """Watches one optimizer step, from :meth:`start` to :meth:`stop`.

    Args:
        first_alone: look only until the root is called after a backward pass, that is at the
            first of several micro-batches. On a GPU the host's time for looking at each
            operation is many times the step's.
    """

    def __init__(
        self,
        root: nn.Module,
        modules: Iterable[nn.Module],
        in_backward: Callable[[], bool],
        *,
        first_alone: bool = False,
    ) -> None:
        self.pieces = Pieces(root)
        self.forward_flops = 0.0
        self._root = root
        self._modules = tuple(modules)
        self._storages = Storages()
        self._watch = OperationWatch(self._count_flops, self._storages)
        self._hooks = ExitStack()
        self._forward: ExitStack | None = None
        self._first_alone = first_alone
        self._passes = 0
        self._passes_not_seen = 0
        self._backward_ran = False
        self._in_call = False
        self._evaluated: nn.Module | None = None
        """The module whose evaluation between two steps runs, which is not looked into."""
        self._in_backward = in_backward
        self._again: set[int] = set()
        self._run_again: list[tuple[nn.Module, int]] = []
        self._recomputed_flops = 0.0
        self._formats: Counter[torch.dtype] = Counter()

    def start(self, optimizers: Iterable[Optimizer]) -> None:
        self._storages.add(held_by({*self._modules, self._root}, optimizers))
        for module in self._root.modules():
            before = module.register_forward_pre_hook(self._before, with_kwargs=True)
            after = module.register_forward_hook(self._after, always_call=True)
            self._hooks.callback(before.remove)
            self._hooks.callback(after.remove)
        self._watch.start()

    def stop(self) -> None:
        self._call_ended()
        self._watch.stop()
        self._hooks.close()

    @property
    def step_flops(self) -> float:
        """Forward FLOPs of the whole step; passes that were not looked at count as the others."""
        return self.forward_flops * (1 + self._passes_not_seen / max(1, self._passes))

    @property
    def storages_peak_bytes(self) -> int:
        """Peak bytes on CPU, weights, gradients and optimizer state included."""
        return self._storages.peak_bytes

    @property
    def precision(self) -> Precision:
        """The format of most weights' layers, by their outputs."""
        most = self._formats.most_common(1)
        return precision_of(most[0][0] if most else torch.float32)

    @property
    def recompute(self) -> Recompute:
        """The parts that the backward pass computed again."""
        if not self._again:
            return Recompute.NONE
        share = self._recomputed_flops / (self.forward_flops or 1.0)
        return Recompute.SELECTIVE if share < _SELECTIVE_BELOW else Recompute.FULL

    def _call_begins(self) -> None:
        """The root is called; on the first call its saved values are recorded."""
        self._passes += 1
        self._in_call = True
        if self._passes == 1 and not _hooks_of_script():
            self._forward = ExitStack()
            keep = torch.autograd.graph.saved_tensors_hooks(self.pieces.keep, lambda kept: kept)
            self._forward.enter_context(keep)

    def _call_ended(self) -> None:
        self._in_call = False
        if self._forward is not None:
            self._forward.close()
            self._forward = None

    def _before(self, module: nn.Module, arguments: tuple[Any, ...], named: Any) -> None:
        if self._in_backward():
            self._again.add(id(module))
            self._run_again.append((module, self._alive_bytes()))
            return
        if self._evaluated is not None or self._begins_evaluation(module):
            return
        if module is self._root and torch.is_grad_enabled():
            if self._first_alone and self._backward_ran:
                self._look_away()
                return
            self._call_begins()
        if self._forward is not None:
            self.pieces.enters(module, arguments, named)

    def _look_away(self) -> None:
        """Another micro-batch begins, of which only the root's calls are counted."""
        self.stop()
        handle = self._root.register_forward_pre_hook(self._count_pass)
        self._hooks.callback(handle.remove)
        self._passes_not_seen = 1

    def _count_pass(self, module: nn.Module, arguments: Any) -> None:
        if torch.is_grad_enabled() and not self._in_backward():
            self._passes_not_seen += 1

    def _after(self, module: nn.Module, arguments: Any, result: Any) -> None:
        if self._in_backward():
            self._ran_again(module)
            return
        if self._evaluated is not None:
            if module is self._evaluated:
                self._evaluated = None
                self._watch.start()
            return
        if self._forward is not None:
            self.pieces.leaves(module)
        if module is self._root:
            self._call_ended()
        weights = [w for w in module.parameters(recurse=False) if w.dim() > 1]
        if weights and isinstance(result, Tensor) and result.is_floating_point():
            self._formats[result.dtype] += sum(weight.numel() for weight in weights)

    def _begins_evaluation(self, module: nn.Module) -> bool:
        """Look away from an evaluation, which would take twice as long."""
        is_training = self._in_call or module.training or torch.is_grad_enabled()
        if not is_training and self._watch.pause():
            self._evaluated = module
        return self._evaluated is not None

    def _ran_again(self, module: nn.Module) -> None:
        """Count new tensors of the outermost module called again: it keeps them otherwise."""
        while self._run_again:
            began, before_bytes = self._run_again.pop()
            if began is module:
                if not self._run_again and self._passes == 1:
                    self.pieces.add_kept_bytes(module, self._alive_bytes() - before_bytes)
                return

    def _alive_bytes(self) -> int:
        """Bytes alive on CPU and, if one is used, on the GPU."""
        return self._storages.alive_bytes + torch.cuda.memory_allocated()

    def _count_flops(self, flops: float) -> None:
        if self._in_backward():
            self._backward_ran = True
            if torch.is_grad_enabled():  # gradients are computed without
                self._recomputed_flops += flops
        elif self._in_call or torch.is_grad_enabled():
            self.forward_flops += flops
            if self._forward is not None:
                self.pieces.add_flops(flops)


def _hooks_of_script() -> bool:
    """True if the script keeps saved tensors elsewhere: only the last of such hooks act."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(True) is not None


class Storages:
    """Bytes of the storages on CPU that are known and alive, and their highest sum."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._bytes = 0
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}

    @property
    def alive_bytes(self) -> int:
        return self._bytes

    def add(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                local = getattr(tensor, "_local_tensor", tensor)
                if local.device.type == "cpu":
                    self._add_storage(local.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self._bytes)

    def add_made(self, results: Iterable[Any], inputs: Iterable[Any]) -> None:
        """Count an operation's new storages, but not its views."""
        old = {_storage_key(tensor) for tensor in inputs} - self._alive.keys()
        self.add(tensor for tensor in results if _storage_key(tensor) not in old)

    def adopt(self, others: Storages) -> None:
        """Count what other storages know that is still alive."""
        for known, _ in list(others._alive.values()):
            if (storage := known()) is not None:
                self._add_storage(storage)
        self.peak_bytes = max(self.peak_bytes, self._bytes)

    @property
    def keys(self) -> frozenset[int]:
        return frozenset(self._alive)

    def _add_storage(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        known = self._alive.get(key)
        if known is not None:
            if known[1] != size:  # resized in place, as sharded weights are
                self._bytes += size - known[1]
                self._alive[key] = (known[0], size)
            return
        self._alive[key] = (weakref.ref(storage, lambda _: self._drop(key)), size)
        self._bytes += size

    def _drop(self, key: int) -> None:
        known = self._alive.pop(key, None)
        if known is not None:
            self._bytes -= known[1]


class OperationWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells ``seen`` the FLOPs of each operation; active from :meth:`start` to :meth:`stop`."""

    def __init__(self, seen: Callable[[float], None], storages: Storages) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._storages = storages
        self._formulas: dict[Any, Callable[..., Any]] = dict(flop_counter().flop_registry)
        self._running = False

    def start(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]
        self._running = True

    def pause(self) -> bool:
        """Stop until :meth:`start`; False if a mode of the script is above, which stays."""
        return self._running and _get_current_dispatch_mode() is self and self.stop()

    def stop(self) -> bool:
        """Stop; False if the script has put its own mode above, which stays."""
        ours = _get_current_dispatch_mode() is self
        if self._running and ours:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._running = False
        return ours

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if self._running:
            self._look(func, args, named, result)
        return result

    def _look(self, func: Any, args: Any, named: dict[str, Any], result: Any) -> None:
        try:
            formula = self._formulas.get(getattr(func, "_overloadpacket", None))
            if formula is not None:
                self._seen(float(formula(*args, **named, out_val=result)))
            self._storages.add_made(tree_leaves(result), tree_leaves((args, named)))
        except Exception:
            return  # a shape that a formula does not know, a tensor without storage


def held_by(modules: Iterable[torch.nn.Module], optimizers: Iterable[Any]) -> list[Tensor]:
    """Tensors held between steps: weights, buffers, gradients, optimizer state."""
    held: list[Any] = []
    for module in modules:
        held += [*module.parameters(), *module.buffers()]
    for optimizer in optimizers:
        held += [weight for group in optimizer.param_groups for weight in group["params"]]
        held += tree_leaves([dict(state) for state in optimizer.state.values()])
    tensors = [tensor for tensor in held if isinstance(tensor, Tensor)]
    leaves = [tensor for tensor in tensors if tensor.is_leaf]
    return [*tensors, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def _storage_key(value: Any) -> int:
    local = getattr(value, "_local_tensor", value)
    return int(local.untyped_storage()._cdata) if isinstance(local, Tensor) else 0


class Exchange:
    """Counts the collectives of all process groups from :meth:`begin` on."""

    def __init__(self) -> None:
        self._before: int | None = None

    def begin(self) -> None:
        self._before = _collectives()

    def is_nothing(self) -> bool:
        """True if there was none; never if something else may exchange, too."""
        if any(name in sys.modules for name in _OTHER_MEANS):
            return False
        return self._before is not None and _collectives() == self._before


def apart(ranks: int, device: str) -> str:
    """The sentence on ranks that exchange nothing."""
    asked = device == "cpu" and any(name in sys.modules for name in _ON_CPU_IF_ASKED)
    hint = (
        "on a CPU, Hugging Face's Trainer joins its ranks only with --use_cpu, and Accelerate "
        "with ACCELERATE_USE_CPU=true"
        if asked
        else "join them in the script (torch.distributed), or launch one rank: --num_gpus 1"
    )
    return (
        f"the {ranks} ranks did not synchronize gradients: each trains a model of its own; {hint}"
    )


def _collectives() -> int | None:
    """Collectives of all process groups so far; None if this torch does not count them."""
    if not dist.is_available() or not dist.is_initialized():
        return 0
    try:
        groups: Any = dist.distributed_c10d._world.pg_map
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except (AttributeError, RuntimeError):
        return None
