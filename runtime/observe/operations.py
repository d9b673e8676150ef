"""Sees every operation of one step: its FLOPs, and the storages on CPU that live at once.

Counts as torch's own counter does, attention on CPU included, but a formula that does not know a
call counts nothing instead of breaking it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from ..model import flop_counter


class Storages:
    """Bytes of the storages on CPU that are known and alive, and their highest sum."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._bytes = 0
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}

    @property
    def alive_bytes(self) -> int:
        """Bytes of the known tensors that are alive now."""
        return self._bytes

    def add(self, tensors: Iterable[Any]) -> None:
        """Count what is not counted yet."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self._add(getattr(tensor, "_local_tensor", tensor))
        self.peak_bytes = max(self.peak_bytes, self._bytes)

    def add_made(self, results: Iterable[Any], inputs: Iterable[Any]) -> None:
        """Count what an operation made, not what it only looks at in another way."""
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
        """The known storages that are alive."""
        return frozenset(self._alive)

    def _add(self, tensor: Tensor) -> None:
        if tensor.device.type == "cpu":
            self._add_storage(tensor.untyped_storage())

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
        """Look at each operation from here on."""
        self.__enter__()  # type: ignore[no-untyped-call]
        self._running = True

    def pause(self) -> bool:
        """Stop until :meth:`start`; False if a mode of the script is above, which stays."""
        return self._running and _get_current_dispatch_mode() is self and self.stop()

    def stop(self) -> bool:
        """Stop; False where the script has put a mode of its own above, which stays."""
        ours = _get_current_dispatch_mode() is self
        if self._running and ours:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._running = False
        return ours

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation as it is, then look."""
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
    return [*tensors, *(tensor.grad for tensor in tensors if _has_gradient(tensor))]  # type: ignore[list-item]


def _storage_key(value: Any) -> int:
    local = getattr(value, "_local_tensor", value)
    return int(local.untyped_storage()._cdata) if isinstance(local, Tensor) else 0


def _has_gradient(tensor: Tensor) -> bool:
    return tensor.is_leaf and tensor.grad is not None
