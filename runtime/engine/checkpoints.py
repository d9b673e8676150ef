"""A training on disk, to go on with under any layout: weights, optimizer, schedule, loss scale.

torch's distributed checkpoint: each rank writes its parts, and reads the parts of its layout. The
data's place and random states are the script's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from autoconf_launch.core import ConfigError

from ..model import LossScale, Schedule
from ..parallel import Applied, gather_weights

WEIGHTS_FILE = "pytorch_model.bin"
"""In it whole weights of a model that does not save itself."""
_MODEL, _OPTIMIZER = "model.", "optimizer."
_ITERATION, _SCALE, _GOOD_STEPS = "schedule.iteration", "loss_scale.value", "loss_scale.good_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The state that a checkpoint holds."""

    model: Applied
    optimizer: Optimizer
    schedule: Schedule | None
    scale: LossScale

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it below a folder; to be called on all ranks."""
        from torch.distributed.checkpoint.state_dict_saver import save

        save(self._state(), checkpoint_id=folder)

    def save_weights(self, folder: str | os.PathLike[str]) -> None:
        """Rank 0 writes whole weights: as transformers does for its models, else one torch file.

        To be called on all ranks; each of them holds the whole weights for that moment.
        """
        model: Any = self.model.models[0]
        whole = self._whole()
        if dist.get_rank() == 0:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if hasattr(model, "save_pretrained"):
                model.save_pretrained(folder, state_dict=whole)
            else:
                torch.save(whole, Path(folder, WEIGHTS_FILE))
        dist.barrier()

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Load a checkpoint of any layout; call it on all ranks.

        Raises:
            ConfigError: there is no checkpoint, or it is of another model or optimizer.
        """
        from torch.distributed.checkpoint.state_dict_loader import load

        known = _shapes(Path(folder))
        _make_optimizer_state(_inner(self.optimizer))
        state = self._state()
        if not any(name.startswith(_OPTIMIZER) for name in known):  # saved before any step
            state = {n: t for n, t in state.items() if not n.startswith(_OPTIMIZER)}
            _inner(self.optimizer).state.clear()
        for name, tensor in state.items():
            _check(Path(folder), name, tensor, known)
        load(state, checkpoint_id=folder)
        if self.schedule is not None:
            self.schedule.go_to(int(state[_ITERATION]))
        self.scale.value, self.scale.good_steps = float(state[_SCALE]), int(state[_GOOD_STEPS])

    def _state(self) -> dict[str, Tensor]:
        iteration = self.schedule.iteration if self.schedule else 0
        return {
            **{
                f"{_MODEL}{name}": tensor
                for model in self.model.models
                for name, tensor in model.state_dict().items()
            },
            **dict(self._optimizer_state()),
            _ITERATION: torch.tensor(iteration),
            _SCALE: torch.tensor(self.scale.value, dtype=torch.float64),
            _GOOD_STEPS: torch.tensor(self.scale.good_steps),
        }

    def _whole(self) -> dict[str, Tensor]:
        """Rank 0 has the weights of all stages, which the ranks of its pipeline send to it."""
        mine: dict[str, Tensor] = {}
        for model in self.model.models:
            mine |= _whole_weights(model)
        along = self.model.along
        if along is None:
            return mine
        return gather_weights(mine, self.model.owners, along)

    def _optimizer_state(self) -> Iterator[tuple[str, Tensor]]:
        """State by name of the weight; under ZeRO 1 of whole replicas only this rank's."""
        state = _inner(self.optimizer).state
        for own_name, weight in self.model.weights().items():
            name = self.model.copies.get(own_name, own_name)
            for kind, value in state.get(weight, {}).items():
                if isinstance(value, Tensor):
                    yield f"{_OPTIMIZER}{name}.{kind}", value


def _whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers by all their names; shared weights are one tensor."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    whole: dict[int, Tensor] = {}
    for one in {id(one): one for one in tensors.values()}.values():
        whole[id(one)] = (one.full_tensor() if isinstance(one, DTensor) else one).detach().cpu()
    return {
        name: whole[id(tensors[name])] if name in tensors else value.detach().cpu()
        for name, value in model.state_dict().items()
    }


def _inner(optimizer: Optimizer) -> Optimizer:
    inner: Optimizer = getattr(optimizer, "optim", optimizer)
    return inner


def _make_optimizer_state(optimizer: Optimizer) -> None:
    """A step without gradients at a rate of 0, as torch's own checkpoints make it."""
    if optimizer.state:
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    try:
        metadata = FileSystemReader(folder).read_metadata()
    except FileNotFoundError as error:
        raise ConfigError(f"{folder} holds no checkpoint of engine.save.") from error
    found = metadata.state_dict_metadata
    return {name: tuple(getattr(one, "size", ())) for name, one in found.items()}


def _check(folder: Path, name: str, tensor: Tensor, known: dict[str, tuple[int, ...]]) -> None:
    if name not in known:
        what = "optimizer" if name.startswith(_OPTIMIZER) else "model"
        raise ConfigError(f"The checkpoint {folder} is of another {what}: it has no {name}.")
    if known[name] != tuple(tensor.shape):
        raise ConfigError(
            f"The checkpoint {folder} is of another model: {name} has the shape {known[name]} "
            f"there, but {tuple(tensor.shape)} here."
        )
