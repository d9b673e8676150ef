"""Trains the benchmark's model on our runtime; tuned and launched by autoconf-launch."""

from __future__ import annotations

import argparse

from torch.utils.data import DataLoader
from workload import DATA, Batches, Clock, add_arguments, build_model, last_value

from autoconf_launch import runtime


def main() -> None:
    """Train for a number of optimizer steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    add_arguments(parser)
    args = parser.parse_args()

    engine = runtime.initialize(build_model, args.config)
    place = (engine.rank, engine.world_size)
    batches = Batches(engine.samples_per_step, 1, steps=args.steps, place=place)
    clock = Clock(args.turns, rank=engine.rank)
    for batch in DataLoader(DATA, batch_sampler=batches):
        loss = engine.step(batch)
        if not clock.tick():
            break
    if engine.rank == 0:
        print(last_value(loss), flush=True)


if __name__ == "__main__":
    main()
