"""Trains the benchmark's model on DeepSpeed; tuned and launched by ``deepspeed``.

The configuration is a file, or what DeepSpeed's tuner hands to a script: base64 of the JSON.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections import deque
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from workload import DATA, Batches, Clock, add_arguments, build_model, last_value


def read_config(argument: str) -> dict[str, Any]:
    """A path where there is such a file, otherwise base64."""
    is_file = argument.endswith(".json")
    text = Path(argument).read_text() if is_file else base64.urlsafe_b64decode(argument)
    document: dict[str, Any] = json.loads(text)
    return document


def main() -> None:
    """Train for a number of optimizer steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deepspeed_config", required=True)
    add_arguments(parser)
    args = parser.parse_args()

    model = build_model()
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config=read_config(args.deepspeed_config),
    )
    size, per_step = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    place = (dist.get_rank(), dist.get_world_size())
    batches = Batches(size, per_step, steps=args.steps, place=place)
    clock = Clock(args.turns, rank=place[0])
    losses: deque[torch.Tensor] = deque(maxlen=per_step)
    for number, batch in enumerate(DataLoader(DATA, batch_sampler=batches), start=1):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
        if number % per_step == 0 and not clock.tick():
            break
    mean = torch.stack(tuple(losses)).mean()
    dist.all_reduce(mean)
    if place[0] == 0:
        print(last_value(mean / place[1]), flush=True)


if __name__ == "__main__":
    main()
