"""Trains with each configuration of a JSON list and prints what rank 0 saw, as JSON."""

from __future__ import annotations

import json
import sys

import torch
from tiny import Tiny, global_batches, share  # type: ignore[import-not-found]

from autoconf_launch.core import encode
from autoconf_launch.runtime.engine import initialize

STEPS = 5


def train(config: dict[str, object]) -> dict[str, object]:
    engine = initialize(Tiny, config)
    losses = []
    for batch in global_batches(engine.samples_per_step * engine.world_size, STEPS):
        loss = engine.step(share(batch, engine.rank, engine.samples_per_step))
        losses.append(float(loss))
    return {"losses": losses, "applied": encode(engine.applied)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = [train(config) for config in json.loads(sys.argv[1])]
    sys.stdout.write(json.dumps(answers))
