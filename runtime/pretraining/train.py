"""Train the model of a base configuration for some optimizer steps.

On a CPU the runtime's configuration must ask for fp32, whatever the base says.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch.utils.data import DataLoader, Sampler

from autoconf_launch.core import ConfigError, RawConfig

from ..engine import ConfigSource, Engine, initialize
from .models import build, family_of, sequence_of, vocabulary_of, written_of
from .text import LEAST_VOCABULARY, Sums

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
