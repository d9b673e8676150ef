"""In the rank: the model, the data and the clock that both training scripts share."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_pretrain_gpt" / "train.py"


def _load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrain_gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_EXAMPLE = _load_example()
DATA = _EXAMPLE.StandardLibrary()
SAMPLES = len(DATA)


def build_model() -> nn.Module:
    """The GPT of the first example, the same weights on each rank."""
    torch.manual_seed(0)
    model: nn.Module = _EXAMPLE.GPT()
    return model


class Batches(Sampler[list[int]]):
    """Batches of one rank, out of one order that every layout shares.

    ``size`` samples each, ``per_step`` of them in each of ``steps`` optimizer steps; ``place``
    is this rank's number and how many there are.
    """

    def __init__(self, size: int, per_step: int, *, steps: int, place: tuple[int, int]) -> None:
        self.size, self.per_step, self.count = size, per_step, steps * per_step
        self.rank, self.world_size = place
        self.order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        share = self.size * self.per_step
        for number in range(self.count):
            step, part = divmod(number, self.per_step)
            start = (step * self.world_size + self.rank) * share + part * self.size
            yield [self.order[i % SAMPLES] for i in range(start, start + self.size)]


class Clock:
    """Wall seconds of each optimizer step, from the end of the one before: loader included.

    With a folder of pipes (``running.py``) it lets so many steps pass as a turn has, reports
    their times, and waits for the next turn; without one it only lets pass.
    """

    def __init__(self, turns: str | None, *, rank: int) -> None:
        self._go = self._done = None
        if turns is not None:
            self._go = (Path(turns) / f"rank{rank}.go").open()
            self._done = (Path(turns) / f"rank{rank}.done").open("w")
        self.goes_on = self._wait()

    def tick(self) -> bool:
        """A step has ended; whether there is to be another one."""
        now_s = time.perf_counter()
        self._step_s.append(now_s - self._last_s)
        self._last_s = now_s
        if self._done is None or len(self._step_s) < self._steps:
            return True
        self._done.write(json.dumps(self._step_s) + "\n")
        self._done.flush()
        return self._wait()

    def _wait(self) -> bool:
        granted = "0" if self._go is None else self._go.readline()
        self._steps, self._step_s = int(granted or 0), list[float]()
        self._last_s = time.perf_counter()
        return bool(granted)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What both scripts take beside their configuration."""
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--turns", help="folder of pipes: steps are taken and timed in turns")
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")


def last_value(loss: Tensor) -> str:
    """The mean loss over the last global batch, as both scripts print it, to be compared."""
    return f"last loss {float(loss):.4f}"
