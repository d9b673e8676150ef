"""Models and tensors that a script keeps on its device besides the trained model.

A teacher, a reference model, an EMA copy or a frozen encoder takes memory, though no gradient
reaches it; so do data sets and replay buffers. A script that sends what it trains to a device
keeps on the host what it does not send there. A script that sends nothing has all in one place.
"""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

from autoconf_launch.core import Bystander

from ..model import alive, is_slice

_HOST, _OPEN, _NAMED, _CUDA = range(-1, 3)
"""Destination of a tensor: the host for sure, none, a device that is the CPU only while no GPU is
seen, CUDA by name."""
_MARK = "_autoconf_launch_place"
"""An attribute of a module, so that its copies have it too."""
_CUDA_NAME = re.compile(r"cuda(:\d+)?")
_LEAST_BYTES = 1 << 20
_TENSORS = "tensors"


class DevicePlaces:
    """Records the devices to which a script sends modules; one per process."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.closed = False
        """True once tensors are no longer followed."""

    def install(self) -> None:
        for name in ("to", "cuda", "cpu"):
            setattr(nn.Module, name, _marking(getattr(nn.Module, name), _PLACE_OF[name]))

    def follow(self, function: Any, given: Any, result: Any) -> None:
        """Note the place of what a function of torch gives: the one it names, else its inputs'."""
        if self.closed:
            return
        leaves = tree_leaves(given)
        place = _CUDA if function is Tensor.cuda else max(map(_named_place, leaves), default=_OPEN)
        inputs = [x for x in leaves if _is_plain(x)]
        if self._sent:
            place = max(place, *map(self.of_tensor, inputs), _OPEN)
        if place == _OPEN:
            return
        for tensor in filter(_is_plain, tree_leaves(result)):
            if is_slice(tensor) and any(storage_key(x) == storage_key(tensor) for x in inputs):
                continue  # on a GPU, the part that is sent there becomes a copy
            storage = tensor.untyped_storage()
            key = storage._cdata
            self._sent[key] = (weakref.ref(storage, _drop_from(self._sent, key)), place)

    def of_tensor(self, tensor: Tensor) -> int:
        known = self._sent.get(storage_key(tensor)) if tensor.layout == torch.strided else None
        return _OPEN if known is None else known[1]

    def of_module(self, module: nn.Module) -> int:
        """Destination of a module, or of the first of its weights that was sent anywhere."""
        marked: int = max(part.__dict__.get(_MARK, _OPEN) for part in module.modules())
        if marked == _HOST:
            return _HOST
        return max([marked, *map(self.of_tensor, _tensors_of(module))])


def _drop_from(sent: dict[int, Any], key: int) -> Callable[[Any], None]:
    return lambda _: sent.pop(key, None)


def storage_key(tensor: Tensor) -> int:
    """The storage of a tensor, which its views share."""
    return int(tensor.untyped_storage()._cdata)


def _named_place(value: Any) -> int:
    if isinstance(value, torch.device):
        return _CUDA if value.type == "cuda" else _NAMED if value.type == "cpu" else _OPEN
    if isinstance(value, str):
        return _CUDA if _CUDA_NAME.fullmatch(value) else _NAMED if value == "cpu" else _OPEN
    return _OPEN


def _place_of_to(*arguments: Any, **named: Any) -> int:
    return max(map(_named_place, tree_leaves((arguments, named))), default=_OPEN)


_PLACE_OF: dict[str, Callable[..., int]] = {
    "to": _place_of_to,
    "cuda": lambda *_, **__: _CUDA,
    "cpu": lambda *_, **__: _HOST,
}


def _marking(original: Callable[..., nn.Module], place_of: Callable[..., int]) -> Any:
    """A method of modules that also notes the destination of a module."""

    @wraps(original)
    def send(self: nn.Module, *arguments: Any, **named: Any) -> nn.Module:
        result = original(self, *arguments, **named)
        if (place := place_of(*arguments, **named)) != _OPEN:
            for part in self.modules():
                part.__dict__[_MARK] = place
        return result

    return send


class Surveyor:
    """Looks for bystanders of a training: at its first call, and when its pass is over."""

    def __init__(self, places: DevicePlaces) -> None:
        self._places = places
        self._place = _OPEN
        self._kept: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._own: dict[int, set[int]] = {}

    def begins(self, module: nn.Module, given: Any, made: Collection[int]) -> None:
        """A module that trains is about to be called, its weights still the script's own.

        Args:
            module: the outermost one.
            given: its arguments.
            made: storages that frozen models made of its batch.
        """
        self._place = max(self._place, self._places.of_module(module))
        self._own.setdefault(id(module), set(map(storage_key, _tensors_of(module))))
        if self._places.closed:
            return
        self._places.closed = True
        leaves = tree_leaves(given)
        batch = {storage_key(x) for x in leaves if _is_plain(x) and not is_slice(x)}
        for tensor in alive(Tensor):
            if _is_plain(tensor) and tensor.grad_fn is None:
                key = storage_key(tensor)
                storage = tensor.untyped_storage()
                if key not in batch and key not in made and storage.nbytes() >= _LEAST_BYTES:
                    whole = tensor if tensor._base is None else tensor._base
                    rows = whole.shape[0] if whole.dim() else 0
                    self._kept[key] = (weakref.ref(storage), self._places.of_tensor(tensor), rows)

    def bystanders(self, roots: Sequence[nn.Module], samples: int) -> tuple[Bystander, ...]:
        """Modules and tensors alive besides the roots, the largest first."""
        gc.collect()
        modules = list(alive(nn.Module))
        own = {storage_key(x) for root in roots for x in _tensors_of(root)}
        own |= {key for root in roots for key in self._own.get(id(root), ())}
        inside = {id(child) for module in modules for child in module.children()}
        of_models = {storage_key(x) for module in modules for x in _own_tensors(module)}
        seen = set(own)
        models: list[Bystander] = []
        for top in (module for module in modules if id(module) not in inside):
            for part, tensors in _strangers(top, own):
                if self._is_here(self._places.of_module(part)):
                    models += _bystanders(type(part).__name__, tensors, seen)
        models.sort(key=lambda one: -one.size_bytes)
        kept = sum(self._kept_sizes(of_models | own, samples))
        if kept:
            models.append(Bystander(name=_TENSORS, parameters=0, size_bytes=kept))
        return tuple(models)

    def _is_here(self, place: int) -> bool:
        return place >= max(self._place, _OPEN)

    def _kept_sizes(self, counted: set[int], samples: int) -> Iterator[int]:
        """Bytes of tensors that are neither a model's, nor of the batch, nor of a data set."""
        loaded = set[int]()
        if self._place <= _OPEN:
            loaders = (*alive(Dataset), *alive(DataLoader))
            loaded = {storage_key(x) for one in loaders for x in _held_tensors(vars(one))}
        for key, (storage, place, rows) in self._kept.items():
            held = storage()
            is_batch = rows == samples
            is_known = is_batch or key in counted or key in loaded
            if held is not None and not is_known and self._is_here(place):
                yield held.nbytes()


def _is_plain(value: Any) -> bool:
    is_tensor = isinstance(value, Tensor) and value.layout == torch.strided
    return is_tensor and value.device.type != "meta"


def _own_tensors(module: nn.Module) -> Iterator[Tensor]:
    held = (*module._parameters.values(), *module._buffers.values())
    return (tensor for tensor in held if _is_plain(tensor))  # type: ignore[misc]


def _tensors_of(module: nn.Module) -> list[Tensor]:
    return [tensor for part in module.modules() for tensor in _own_tensors(part)]


def _strangers(module: nn.Module, own: set[int]) -> Iterator[tuple[nn.Module, list[Tensor]]]:
    """The outermost modules without a weight of the trained model, with their tensors."""
    tensors = _tensors_of(module)
    keys = set(map(storage_key, tensors))
    if not keys & own:
        yield module, tensors
    elif not keys <= own:
        yield module, list(_own_tensors(module))
        for child in module.children():
            yield from _strangers(child, own)


def _bystanders(name: str, tensors: list[Tensor], seen: set[int]) -> list[Bystander]:
    """A model by the tensors that no other has; none if nothing is left."""
    count = size = 0
    for tensor in tensors:
        if (key := storage_key(tensor)) not in seen:
            seen.add(key)
            size += tensor.untyped_storage().nbytes()
            count += tensor.numel() if isinstance(tensor, nn.Parameter) else 0
    return [Bystander(name=name, parameters=count, size_bytes=size)] if size else []


def _held_tensors(value: Any, depth: int = 3) -> Iterator[Tensor]:
    if _is_plain(value):
        yield value
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from _held_tensors(one, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for one in value:
            yield from _held_tensors(one, depth - 1)
