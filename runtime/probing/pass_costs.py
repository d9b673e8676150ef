"""Operations and live storages of one forward and backward pass. Not: pieces of the model.

Works on real tensors and on fake ones, which allocate nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autoconf_launch.core.first_forward import OperationCost

from ..flops import flop_counter
from .operations import Storages

_GATHERS = ("embedding", "index_select", "gather", "index")
"""Operations that read of their first argument no more than they write."""


class PhasedStorages(Storages):
    """Storages whose highest sum is taken phase by phase."""

    def next_phase(self) -> int:
        """The highest sum since the last call; the next phase begins with what lives now."""
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
        """Look no longer."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Begin anew with what lives now."""
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
        """Run an operation as it is, then look."""
        named = kwargs or {}
        result = func(*args, **named)
        with suppress(Exception):  # a shape that a formula does not know, no storage
            self._look(func, args, named, result)
        return result

    def _look(self, func: Any, args: Any, named: dict[str, Any], result: Any) -> None:
        given = _tensors((args, named))
        made = _tensors(result)
        self.storages.add_made(made, given)
        before = {_key(tensor) for tensor in given}
        changes = func._schema.is_mutable
        if not made or (not changes and all(_key(tensor) in before for tensor in made)):
            return  # another look at what is there
        name = func._overloadpacket.__name__
        if name.startswith(("empty", "new_empty")):
            return
        formula = self._formulas.get(func._overloadpacket)
        flops = float(formula(*args, **named, out_val=result)) if formula else 0.0
        written = sum(map(_bytes, made))
        read = sum(_bytes(t) for t in given[1:]) + written if name in _GATHERS else 0
        self._costs[flops, written + (read or sum(map(_bytes, given)))] += 1


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
