"""Trains under one layout, saves, and goes on under others; prints all losses as JSON.

An evaluation after the checkpoint must be the loss of the step that follows.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from parallel_rows.models import batches, build  # type: ignore[import-not-found]
from parallel_rows.rows import Row  # type: ignore[import-not-found]

from autoconf_launch.runtime.engine import initialize

STEPS, BEFORE = 5, 2
MODEL, RANKS = "own_deep", int(os.environ["WORLD_SIZE"])
WARMUP = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 4}}


def losses(layout: dict[str, Any], folder: str, *, saves: bool) -> list[float]:
    row = Row(ranks=RANKS, **{"model": MODEL, **layout})
    engine = initialize(lambda: build(row.model), {**row.case["config"], "scheduler": WARMUP})
    if not saves:
        engine.load(folder)
    found = []
    for number, batch in enumerate(batches(STEPS)):
        if not saves and number < BEFORE:
            continue
        if saves and number == BEFORE:
            engine.save(folder)
        mine = {n: part[engine.share] for n, part in batch.items()}
        evaluated = engine.evaluate(mine) if number == BEFORE else None
        found.append(float(engine.step(mine)))
        assert evaluated is None or abs(float(evaluated) - found[-1]) < 1e-5
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = []
    for number, (first, *others) in enumerate(json.loads(sys.argv[1])):
        below = f"{sys.argv[2]}/{number}"
        whole = losses(first, below, saves=True)
        answers.append(
            [whole[BEFORE:], *(losses(layout, below, saves=False) for layout in others)]
        )
    sys.stdout.write(json.dumps(answers))
