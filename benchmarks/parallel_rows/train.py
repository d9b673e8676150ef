"""One rank: trains each row of a JSON list and prints what it saw, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from autoconf_launch.core import encode
from autoconf_launch.runtime.engine import trainer
from autoconf_launch.runtime.engine.engine import initialize

sys.path.insert(0, str(Path(__file__).parents[1]))
from parallel_rows.models import batches, build

NORMS: list[float] = []
measured_norm = trainer.global_norm


def kept_norm(*arguments: Any) -> torch.Tensor:
    """The engine's own norm, noted."""
    norm = measured_norm(*arguments)
    NORMS.append(float(norm))
    return norm


def train(row: dict[str, Any]) -> dict[str, object]:
    """Losses, norms and what was seen to run."""
    NORMS.clear()
    engine = initialize(lambda: build(row["model"]), row["config"])
    losses = [
        float(engine.step({name: part[engine.share] for name, part in batch.items()}))
        for batch in batches()
    ]
    return {"losses": losses, "norms": list(NORMS), "applied": encode(engine.applied)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer.global_norm = kept_norm
    sys.stdout.write(json.dumps([train(row) for row in json.loads(sys.argv[1])]))
