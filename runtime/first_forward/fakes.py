"""Fake weights in the place of real ones, so that a pass is gone through without computing.

Only what has to do with weights becomes fake: masks and lengths of the script's batch stay real,
and what it decides by them stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from ..model import tensor_bytes

_READ = (Tensor.item, Tensor.__float__, Tensor.tolist)
_LARGE_BYTES = 1 << 16
_ANY_LOSS = 1.0
"""Value for a script that reads a loss that was not computed."""
_CREATORS = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint}
)
_LARGE_TENSOR_BYTES = 1 << 30


class Fakes:
    """The fake of each weight, made once."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def take(self, module: nn.Module) -> list[Tensor]:
        """Put fakes in the place of a module's weights and buffers; gives the new ones.

        Raises:
            TypeError: a weight is of another kind than torch's own.
        """
        before = len(self._made)
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    if tensor is not None and not isinstance(tensor, FakeTensor):
                        held[name] = self.of(tensor)  # type: ignore[assignment]
            if isinstance(part, nn.RNNBase):
                part._flat_weights = [getattr(part, n, None) for n in part._flat_weights_names]
        return [fake for _, fake in list(self._made.values())[before:]]

    def of(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._made:
            self._made[id(tensor)] = (tensor, self.new(tensor))
        return self._made[id(tensor)][1]

    def new(self, tensor: Tensor) -> Tensor:
        """A new fake, without a reference to the tensor that it imitates.

        Raises:
            TypeError: a weight is of another kind than torch's own.
        """
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
            raise TypeError(f"a weight is a {type(tensor).__name__}")
        with self._mode:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            if isinstance(tensor, nn.Parameter):
                fake = nn.Parameter(fake, tensor.requires_grad)
        return fake

    def empty_like(self, tensor: Tensor, shape: Iterable[int]) -> Tensor:
        with self._mode:
            return torch.empty(tuple(shape), dtype=tensor.dtype)

    def create(self, function: Callable[..., Any], *given: Any, **named: Any) -> Tensor:
        with self._mode:
            made: Tensor = function(*given, **named)
        return made

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Have it step the fakes of the weights that have one, with no state."""
        for group in optimizer.param_groups:
            group["params"] = [
                weight if isinstance(weight, FakeTensor) else self._made[id(weight)][1]
                for weight in group["params"]
                if isinstance(weight, FakeTensor) or id(weight) in self._made
            ]
        optimizer.state.clear()


def make_hollow(fakes: Fakes) -> None:
    """Have the large weights of all modules be fake as soon as they are made, from here on.

    Memory that a module allocates for a weight is never written to, so that it takes no room.
    """
    original = nn.Module.register_parameter

    @wraps(original)
    def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(self, name, param)
        if type(param) is nn.Parameter and tensor_bytes(param) > _LARGE_BYTES:
            self._parameters[name] = fakes.new(param)  # type: ignore[assignment]

    LargeTensors(fakes).__enter__()  # type: ignore[no-untyped-call]
    nn.Module.register_parameter = register_parameter  # type: ignore[method-assign]
    nn.Module._apply = _make_apply({})  # type: ignore[method-assign]


class LargeTensors(TorchFunctionMode):
    """Makes large tensors fake that a script creates by size, such as a replay buffer."""

    def __init__(self, fakes: Fakes) -> None:
        super().__init__()
        self._fakes = fakes

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _CREATORS and "out" not in named:
            made = self._fakes.create(func, *args, **named)
            if tensor_bytes(made) > _LARGE_TENSOR_BYTES:
                return made
        return func(*args, **named)


def _make_apply(moved: dict[int, tuple[Tensor, Tensor]]) -> Callable[..., nn.Module]:
    """A replacement of ``to`` and ``half``: torch changes weights in place, which fakes forbid.

    ``moved`` keeps weights that several modules share one.
    """

    def apply(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        for part in self.modules() if recurse else (self,):
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    if tensor is not None:
                        held[name] = _change_once(tensor, fn, moved)  # type: ignore[assignment]
        return self

    return apply


def _change_once(
    tensor: Tensor,
    change: Callable[[Tensor], Tensor],
    moved: dict[int, tuple[Tensor, Tensor]],
) -> Tensor:
    if id(tensor) in moved:
        return moved[id(tensor)][1]
    with torch.no_grad():
        changed = change(tensor)
    if changed is tensor:
        return tensor
    if isinstance(tensor, nn.Parameter):
        changed = nn.Parameter(changed, tensor.requires_grad)
    moved[id(tensor)] = (tensor, changed)
    return changed


class Answers(TorchFunctionMode):
    """Ends the attempt at the first operation that fakes cannot do.

    A loss that the script only looks at is 1, and finite.
    """

    def __init__(self, fail: Callable[[BaseException], object]) -> None:
        super().__init__()
        self._fail = fail

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        first = args[0] if args else None
        if isinstance(first, FakeTensor) and first.numel() == 1:
            if func in _READ and first.is_floating_point():
                return _ANY_LOSS
            if func in (torch.isfinite, Tensor.isfinite):
                return torch.ones(first.shape, dtype=torch.bool)
            if func in (torch.isnan, torch.isinf, Tensor.isnan, Tensor.isinf):
                return torch.zeros(first.shape, dtype=torch.bool)
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            self._fail(error)
            raise
