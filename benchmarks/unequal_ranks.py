"""Two ranks, one slower by a stated time: measured and predicted gain of uneven shares.

A hook holds each block in its forward pass, for longer on rank 1, so that the machine's load
matters little. All splits are priced, and the cheapest runs in turn with the even one. Writes
``results/unequal_ranks.md``; ends with code 1 if a split gains under 80 % of the prediction.
``--rounds N`` takes N rounds instead, unwritten.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from engine_overhead import RATE, WORDS, Block, Decoder, mean_loss
from torch import nn

from autoconf_launch.launcher.machine import free_port
from autoconf_launch.runtime.engine.engine import Engine, initialize

RESULT = Path(__file__).parent / "results" / "unequal_ranks.md"
WANTED = 0.8
ROUNDS, STEPS, WARM_UP = 6, 3, 2
HELD_S = (0.015, 0.045)
"""Delay of each rank, for a block and a sample."""
BLOCKS, TOKENS, SAMPLES, MICRO_BATCHES = 8, 8, 8, 4
Split = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Something that is shared out over two ranks.

    Attributes:
        name: for people.
        key: of ``parallelism``.
        even, splits: shares of the ranks.
        step_s: price of a split, from seconds of a block and sample, forward and backward.
        config: the rest of a configuration.
    """

    name: str
    key: str
    even: Split
    splits: tuple[Split, ...]
    step_s: Callable[[Split, float], float]
    config: dict[str, Any]


def pipeline_step_s(split: Split, block_s: float) -> float:
    """1F1B over two stages: the slower one has work for each micro-batch, the other one joins.

    The first stage waits for the last one at the end of a step, and it for the first at the start.
    """
    each = SAMPLES // MICRO_BATCHES
    stage_s = [n * each * (block_s + held_s) for n, held_s in zip(split, HELD_S, strict=True)]
    return sum(stage_s) + (MICRO_BATCHES - 1) * max(stage_s)


def data_step_s(split: Split, block_s: float) -> float:
    """Both ranks wait for the slower one when gradients are averaged."""
    return max(n * BLOCKS * (block_s + held_s) for n, held_s in zip(split, HELD_S, strict=True))


KINDS = (
    Kind(
        name="blocks of two pipeline stages (1F1B)",
        key="pipeline_split",
        even=(BLOCKS // 2, BLOCKS // 2),
        splits=tuple((n, BLOCKS - n) for n in range(1, BLOCKS)),
        step_s=pipeline_step_s,
        config={
            "train_micro_batch_size_per_gpu": SAMPLES // MICRO_BATCHES,
            "gradient_accumulation_steps": MICRO_BATCHES,
            "parallelism": {"pipeline": 2},
        },
    ),
    Kind(
        name="samples of two data-parallel ranks (DDP)",
        key="micro_batch_split",
        even=(SAMPLES // 2, SAMPLES // 2),
        splits=tuple((n, SAMPLES - n) for n in range(1, SAMPLES)),
        step_s=data_step_s,
        config={"train_micro_batch_size_per_gpu": SAMPLES // 2, "parallelism": {}},
    ),
)


def block_s() -> float:
    """Seconds of a block for a sample here, forward and backward, from one model's steps."""
    model, batch = Decoder(BLOCKS), text(SAMPLES)
    bare = Decoder(0)

    def seconds(of: Any) -> float:
        since_s = time.perf_counter()
        torch.autograd.backward(mean_loss(of, batch))
        return time.perf_counter() - since_s

    pairs = [(seconds(model), seconds(bare)) for _ in range(WARM_UP + 2 * ROUNDS)][WARM_UP:]
    whole_s = statistics.median(a - b for a, b in pairs)
    return max(0.0, whole_s) / (BLOCKS * SAMPLES)


def text(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch."""
    words = torch.randint(WORDS, (samples, TOKENS), generator=torch.Generator().manual_seed(1))
    return words, (7 * words + 3) % WORDS


def slow_down(engine: Engine) -> Engine:
    """The engine with blocks that take as long as this rank's do."""

    def wait(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        time.sleep(HELD_S[engine.rank] * len(inputs[0]))

    for module in engine.module.modules():
        if isinstance(module, Block):
            module.register_forward_pre_hook(wait)
    return engine


def run_rank(kind: Kind, rounds: int) -> dict[str, Any]:
    """Seconds of steps of the even split and of the cheapest one, in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    measured = torch.tensor(block_s())
    dist.broadcast(measured, src=0)
    prices_s = {split: kind.step_s(split, float(measured)) for split in kind.splits}
    best = min(prices_s, key=prices_s.__getitem__)
    engines = [start(kind, split) for split in (kind.even, best)]
    found: list[list[float]] = [[], []]
    for _ in range(1 + rounds):
        for which, engine in enumerate(engines):
            found[which] += [seconds_of(engine) for _ in range(STEPS)]
    return {
        "best": best,
        "block_s": float(measured),
        "predicted_s": [prices_s[kind.even], prices_s[best]],
        "steps_s": [steps[STEPS:] for steps in found],  # the first round warms up
    }


def start(kind: Kind, split: Split) -> Engine:
    """An engine of this split."""
    config = {
        **kind.config,
        "optimizer": {"type": "AdamW", "params": {"lr": RATE}},
        "parallelism": {**kind.config["parallelism"], kind.key: list(split)},
    }
    return slow_down(initialize(partial(Decoder, BLOCKS), config, loss_fn=mean_loss))


def seconds_of(engine: Engine) -> float:
    """Seconds of one step, which both ranks begin together and have ended."""
    batch = text(engine.global_batch)
    share = tuple(part[engine.share] for part in batch)
    dist.barrier()
    since_s = time.perf_counter()
    engine.step(share)
    dist.barrier()
    return time.perf_counter() - since_s


def launch(kind: Kind, rounds: int) -> dict[str, Any]:
    """Run both ranks; returns rank 0's times."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            (sys.executable, __file__, "--kind", kind.key, "--rounds", str(rounds)),
            stdout=subprocess.PIPE,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": "0"},
        )
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"A rank of {kind.name} failed; its error stands above.")
    seen: dict[str, Any] = json.loads(outputs[0])
    return seen


def share_of_gain(seen: dict[str, Any]) -> float:
    """Measured gain over the predicted one."""
    even_s, best_s = (statistics.median(steps) for steps in seen["steps_s"])
    predicted_even_s, predicted_best_s = seen["predicted_s"]
    gain_s: float = (even_s - best_s) / (predicted_even_s - predicted_best_s)
    return gain_s


CELLS = ("what is shared out", "even", "cheapest", "predicted gain", "measured gain", "of it", "")


def cells(kind: Kind, seen: dict[str, Any]) -> tuple[str, ...]:
    """Cells of a line of the table."""
    even_s, best_s = (statistics.median(steps) for steps in seen["steps_s"])
    expected_s, cheapest_s = seen["predicted_s"]
    part = share_of_gain(seen)
    return (
        kind.name,
        f"{'+'.join(map(str, kind.even))}: {expected_s * 1e3:.0f} → {even_s * 1e3:.0f} ms",
        f"{'+'.join(map(str, seen['best']))}: {cheapest_s * 1e3:.0f} → {best_s * 1e3:.0f} ms",
        f"{(expected_s - cheapest_s) * 1e3:.0f} ms",
        f"{(even_s - best_s) * 1e3:.0f} ms",
        f"{part:.0%}",
        "ok" if part >= WANTED else "**under 80 %**",
    )


def table(found: Sequence[tuple[Kind, dict[str, Any]]], load: float) -> str:
    """The file."""
    lines = [CELLS, ("---",) * len(CELLS), *(cells(*pair) for pair in found)]
    return "\n".join(
        (
            "# Two unequal ranks",
            "",
            "Written by `benchmarks/unequal_ranks.py`. A hook holds each block for",
            f"{HELD_S[0] * 1e3:g} ms a sample on rank 0 and {HELD_S[1] * 1e3:g} ms on rank 1.",
            f"Every split of {BLOCKS} blocks, or of {SAMPLES} samples, is priced from these times",
            "and what a block was measured to compute; the cheapest takes its steps in turn with",
            "the even one. Times of a step are predicted → measured (medians). At least 80 % of",
            f"the predicted gain is wanted. torch {torch.__version__}, gloo, one thread a rank;",
            f"load of the machine {load:.1f} on {os.cpu_count()} cores.",
            "",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
        )
    )


def main() -> int:
    """Run both kinds, print, and write unless shortened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kind is not None:
        kind = next(one for one in KINDS if one.key == given.kind)
        sys.stdout.write(json.dumps(run_rank(kind, given.rounds)))
        return 0
    load = os.getloadavg()[0]
    found = [(kind, launch(kind, given.rounds)) for kind in KINDS]
    text_ = table(found, load)
    print(text_)
    if given.rounds == ROUNDS:
        RESULT.write_text(text_)
    return 0 if all(share_of_gain(seen) >= WANTED for _, seen in found) else 1


if __name__ == "__main__":
    sys.exit(main())
