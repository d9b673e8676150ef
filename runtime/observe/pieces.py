"""The root's blocks as one forward pass of the script's own shows them, as a ModelSpec.

Everything is of the micro-batch that ran, so what a sample takes is a share of it: numbers that
do not grow with the batch (weights cast to another format) are spread over the samples too.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any

from torch import Tensor, nn

from autoconf_launch.core import BlockSpec, Grade, ModelSpec

from ..model import (
    EMBEDDING,
    HEAD,
    MODEL,
    REST,
    Piece,
    bytes_per_parameter,
    first_tensor,
    is_slice,
    piece_names,
    tensors_in,
    vocabulary_size,
)

_INSIDE = ("module", "_orig_mod", "_fsdp_wrapped_module")
_WRAPPERS = (
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
    "OptimizedModule",
    "_FabricModule",
)
_LOOKED_INTO = "From one micro-batch of the script's own, spread over its samples."
_NOT_LOOKED_INTO = "No forward pass was looked into: FLOPs and activations are unknown."


def unwrapped_model(root: nn.Module) -> nn.Module:
    """The model below the wrappers of frameworks."""
    while type(root).__name__ in _WRAPPERS:
        inside = next((getattr(root, name) for name in _INSIDE if hasattr(root, name)), None)
        if not isinstance(inside, nn.Module):
            return root
        root = inside
    return root


class Pieces:
    """Receives the modules that run in one forward pass, in order."""

    def __init__(self, root: nn.Module) -> None:
        self._model: nn.Module | None = unwrapped_model(root)
        self._names = {id(piece): name for piece, name in piece_names(self._model)}
        self._place = EMBEDDING if self._names else MODEL
        self._pieces: dict[str, Piece] = {}
        self._places: dict[int, str] = {}
        self._counted: set[int] = set()
        self._known = {
            tensor.untyped_storage()._cdata
            for tensor in (*self._model.parameters(), *self._model.buffers())
            if type(tensor) in (Tensor, nn.Parameter)
        }
        self.repeated = len(self._names)

    @property
    def forward_flops(self) -> float:
        return sum(piece.flops for piece in self._pieces.values())

    def enters(self, module: nn.Module, arguments: tuple[Any, ...], named: Any) -> None:
        """A module is called; a data set that the first one's batch is a slice of is not kept."""
        if not self._places:
            slices = (x for x in tensors_in((arguments, named)) if is_slice(x))
            self._known |= {x.untyped_storage()._cdata for x in slices}
        if id(module) in self._names:
            self._place = self._names[id(module)]
            first = first_tensor((arguments, named), 0)
            if first is not None and first.is_floating_point():
                piece = self._here()
                piece.input_bytes += first.numel() * first.element_size()
                piece.input_shape = tuple(first.shape)
        self._places.setdefault(id(module), self._place)
        for weight in module.parameters(recurse=False):
            self._count(weight)

    def leaves(self, module: nn.Module) -> None:
        if id(module) in self._names:
            self._place = HEAD

    def add_flops(self, flops: float) -> None:
        self._here().flops += flops

    def keep(self, tensor: Tensor) -> Tensor:
        """A tensor is kept for the backward pass; for ``saved_tensors_hooks``."""
        try:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known and not isinstance(tensor, nn.Parameter):
                self._known.add(storage._cdata)
                self._here().kept_bytes += storage.nbytes()
        except (RuntimeError, NotImplementedError):
            pass  # no storage of its own
        return tensor

    def add_kept_bytes(self, module: nn.Module, kept_bytes: int) -> None:
        """A module that ran again in the backward pass keeps this without recomputation."""
        place = self._places.get(id(module))
        if place is not None:
            self._pieces.setdefault(place, Piece(name=place)).kept_bytes += max(0, kept_bytes)

    def let_go(self) -> None:
        """Take the needed parts of the model: a script may drop it and make another."""
        if self._model is not None:
            self._count_what_never_ran(self._model)
            self._bytes_each = bytes_per_parameter(self._model)
            self._vocabulary_size = vocabulary_size(self._model)
            self._model = None

    def spec(self, micro_batch: int) -> ModelSpec:
        """The model for one sample; its weights only, if no forward pass was looked into."""
        self.let_go()
        ordered = [self._pieces.pop(name, None) for name in (HEAD, REST)]
        pieces = [*self._pieces.values(), *(piece for piece in ordered if piece)]
        shape = next((p.input_shape for p in pieces if len(p.input_shape) == 3), None)
        swapped = shape is not None and shape[0] != micro_batch and shape[1] == micro_batch
        groups = groupby(pieces, lambda piece: piece.kind)
        return ModelSpec(
            grade=Grade.MEASURED if self._places else Grade.OPAQUE,
            blocks=tuple(_block(list(group), micro_batch) for _, group in groups),
            parameter_bytes_each=self._bytes_each,
            hidden_size=shape[2] if shape else None,
            sequence_length=shape[0 if swapped else 1] if shape else None,
            layers=self.repeated or None,
            vocabulary_size=self._vocabulary_size,
            notes=(_LOOKED_INTO if self._places else _NOT_LOOKED_INTO,),
        )

    def _here(self) -> Piece:
        return self._pieces.setdefault(self._place, Piece(name=self._place))

    def _count(self, weight: nn.Parameter, place: str | None = None) -> None:
        if id(weight) in self._counted:
            return
        self._counted.add(id(weight))
        piece = self._pieces.setdefault(place, Piece(name=place)) if place else self._here()
        elements = int(getattr(weight, "ds_numel", weight.numel()))
        piece.parameters += elements
        piece.frozen_parameters += 0 if weight.requires_grad else elements

    def _count_what_never_ran(self, model: nn.Module) -> None:
        if any(piece.parameters for piece in self._pieces.values()):
            for weight in model.parameters():
                self._count(weight, REST)
            return
        for module in model.modules():
            for weight in module.parameters(recurse=False):
                self._count(weight)


def _block(group: list[Piece], micro_batch: int) -> BlockSpec:
    count, share = len(group), len(group) * max(1, micro_batch)
    return BlockSpec(
        name=group[0].kind[0],
        count=count,
        parameters=group[0].parameters,
        frozen_parameters=group[0].frozen_parameters,
        flops=sum(piece.flops for piece in group) / share,
        activation_bytes=sum(piece.kept_bytes for piece in group) // share,
        input_bytes=sum(piece.input_bytes for piece in group) // share,
    )


def has_compiled_part(root: nn.Module) -> bool:
    """True if torch.compile runs any of it, so that modules' hooks would make it compile again."""
    compiled = "_compiled_call_impl"
    return (
        any(
            type(module).__name__ == "OptimizedModule"
            or getattr(module, compiled, None) is not None
            for module in root.modules()
        )
        or dynamo_ran()
    )


def dynamo_ran() -> bool:
    """True if torch.compile has compiled anything in this process."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("stats", {}).get("unique_graphs"))
