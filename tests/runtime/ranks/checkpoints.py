"""Trains under one layout, saves, and goes on under others; prints all losses as JSON.

An evaluation after the checkpoint must be the loss of the step that follows.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from parallel_rows.models import batches, build  # type: ignore[import-not-found]
from parallel_rows.rows import Row  # type: ignore[import-not-found]

from autoconf_launch.runtime.engine import Engine, initialize

STEPS, BEFORE = 5, 2
MODEL, RANKS = "own_deep", int(os.environ["WORLD_SIZE"])
WARMUP = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 4}}


@cache
def plain_losses(model: str) -> list[float]:
    engine = engine_of({"model": model})
    return [float(engine.step(share(engine, batch))) for batch in batches(STEPS)]


def losses_in_turn(layouts: list[dict[str, Any]], folder: str) -> list[float]:
    """Losses of the first layout's ``BEFORE`` steps and one step of each other layout."""
    found: list[float] = []
    for number, layout in enumerate(layouts):
        engine = engine_of(layout)
        if number:
            engine.load(f"{folder}/{number}")
            evaluated = float(engine.evaluate(share(engine, batches(STEPS)[len(found)])))
        for batch in batches(STEPS)[len(found) :][: 1 if number else BEFORE]:
            found.append(float(engine.step(share(engine, batch))))
        assert not number or abs(evaluated - found[-1]) < 1e-5
        engine.save(f"{folder}/{number + 1}")
    return found


def engine_of(layout: dict[str, Any]) -> Engine:
    row = Row(ranks=RANKS, **{"model": MODEL, **layout})
    return initialize(lambda: build(row.model), {**row.case["config"], "scheduler": WARMUP})


def share(engine: Engine, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part[engine.share] for name, part in batch.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = []
    for number, layouts in enumerate(json.loads(sys.argv[1])):
        found = losses_in_turn(layouts, f"{sys.argv[2]}/{number}")
        answers.append((plain_losses(layouts[0].get("model", MODEL)), found))
    sys.stdout.write(json.dumps(answers))
