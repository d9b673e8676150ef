"""Trains a model under each layout and writes its whole weights; prints a loss after it."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from parallel_rows.models import batches, build  # type: ignore[import-not-found]
from parallel_rows.rows import Row  # type: ignore[import-not-found]

from autoconf_launch.runtime.engine import initialize

if __name__ == "__main__":
    torch.set_num_threads(1)
    losses = []
    for number, layout in enumerate(json.loads(sys.argv[1])):
        row = Row(ranks=int(os.environ["WORLD_SIZE"]), **layout)
        engine = initialize(partial(build, row.model), row.case["config"])
        first, second = batches(2)
        engine.step({name: part[engine.share] for name, part in first.items()})
        engine.save(f"{sys.argv[2]}/{number}", consolidated=True)
        losses.append(
            float(engine.step({name: part[engine.share] for name, part in second.items()}))
        )
    sys.stdout.write(json.dumps(losses))
