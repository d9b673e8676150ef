"""Train the model of a base configuration for some optimizer steps.

On a CPU the runtime's configuration must ask for fp32, whatever the base says.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from autoconf_launch.core import ConfigError, RawConfig

from ..engine import ConfigSource, Engine, initialize
from .models import build, family_of, sequence_of, vocabulary_of, written_of

PAD, END, MASK = 0, 1, 2
SPECIAL = 3
LEAST_VOCABULARY = 256 + SPECIAL
"""Tokens that a model must know to read this text."""
_SUMS = 20_000
_MASKED = 0.15
_MISSING = 4
"""An encoder's input lacks at most one token in this many."""
_ENCODER_DECODERS = ("t5", "mt5")
_NOT_COUNTED = -100
_WARM_UP = 5
"""Steps that are not timed."""


class RankShare(Sampler[list[int]]):
    """This rank's part of each global batch, out of one order that all layouts share."""

    def __init__(self, engine: Engine, samples: int, steps: int) -> None:
        self.engine, self.steps = engine, steps
        self.order = torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.steps):
            start = step * self.engine.global_batch
            batch = range(start, start + self.engine.global_batch)
            yield [self.order[i % len(self.order)] for i in batch[self.engine.share]]


def train(
    base: RawConfig, config: ConfigSource, steps: int, say: Callable[[str], None] = lambda _: None
) -> None:
    """Train on the text of :mod:`.text`; rank 0 says its loss, and how long a step takes.

    Raises:
        ConfigError: the model knows fewer tokens than the text has.
    """
    if vocabulary_of(base) < LEAST_VOCABULARY:
        raise ConfigError(
            f"autoconf.vocab_size is {vocabulary_of(base)}, but the text needs a vocabulary of "
            f"{LEAST_VOCABULARY}; give a larger one (recommend --vocab, vocab_size=…)."
        )
    torch.manual_seed(0)
    engine = initialize(lambda: build(base), config)
    data = Sums(family_of(base), sequence_of(base), written_of(base))
    share = RankShare(engine, len(data), steps)
    speaks = engine.rank == 0
    ends = [time.perf_counter()]
    for step, batch in enumerate(DataLoader(data, batch_sampler=share), start=1):
        loss = engine.step(batch)
        loss.item()  # waits for the device
        ends.append(time.perf_counter())
        if speaks and (step % 10 == 0 or step == 1):
            say(f"step {step:4d}  loss {loss:.4f}")
    if speaks:
        say(f"done: {steps} steps, last loss {loss:.4f}, step_time_s {median_step_s(ends):.4g}")


def median_step_s(ends: Sequence[float]) -> float:
    """Seconds between the ends of steps, without the first few where there are more."""
    seconds = [after - before for before, after in pairwise(ends)]
    return statistics.median(seconds[_WARM_UP:] or seconds)


class Sums(Dataset[dict[str, Tensor]]):
    """Windows of the text with what a family's model is to say of them."""

    def __init__(self, family: str, tokens: int, written: int | None = None) -> None:
        """Make the text.

        Args:
            family: of the model.
            tokens: of a window.
            written: tokens that an encoder-decoder writes of it; None: what is missing in it.
        """
        self._family, self._tokens = family, tokens
        self._written = max(1, tokens // _MISSING) if written is None else written
        numbers = torch.Generator().manual_seed(0)
        pairs = torch.randint(0, 100, (_SUMS, 2), generator=numbers).tolist()
        text = "".join(f"{a} and {b} are {a + b}. " for a, b in pairs).encode()
        self._ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long() + SPECIAL

    def __len__(self) -> int:
        beyond = self._written if self._family in _ENCODER_DECODERS else 0
        return max(1, (len(self._ids) - beyond) // self._tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        end = (index + 1) * self._tokens
        window = self._ids[index * self._tokens : end]
        if self._family in _ENCODER_DECODERS:
            return _with_a_gap(window, self._ids[end : end + self._written], self._written)
        return _masked_batch(window, index) if self._family == "bert" else _next(window)


def _next(window: Tensor) -> dict[str, Tensor]:
    """Transformers shifts the labels itself."""
    return {"input_ids": window, "labels": window}


def _masked_batch(window: Tensor, index: int) -> dict[str, Tensor]:
    chosen = torch.rand(len(window), generator=torch.Generator().manual_seed(index)) < _MASKED
    chosen[index % len(window)] = True
    return {
        "input_ids": window.where(~chosen, torch.tensor(MASK)),
        "labels": window.where(chosen, torch.tensor(_NOT_COUNTED)),
    }


def _with_a_gap(window: Tensor, following: Tensor, written: int) -> dict[str, Tensor]:
    """The middle, a quarter at most, is missing and has to be said, then what follows."""
    gap = min(written, max(1, len(window) // _MISSING))
    start = (len(window) - gap) // 2
    given = window.clone()
    given[start : start + gap] = MASK
    said = torch.cat((window[start : start + gap], following[: written - gap]))
    return {"input_ids": given, "labels": said}
