"""A tiny training whose micro-batches take a known time, longer while a load is on.

``LOADED`` names the launches with a load, counted from 1 for the profile run, as ``3`` or ``3-5``.
"""

import argparse
import os
import time
from pathlib import Path

import torch

import autoconf_launch.runtime as runtime

MICRO_BATCH_S, SAMPLE_S = 0.01, 0.0005
LOAD = 5.0

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()

launches = Path("launches")
with launches.open("a") as file:
    file.write("one\n")
number = len(launches.read_text().splitlines())
bounds = [int(bound) for bound in os.environ.get("LOADED", "0").split("-")]
factor = LOAD if bounds[0] <= number <= bounds[-1] else 1.0

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    time.sleep(factor * (MICRO_BATCH_S + SAMPLE_S * len(batch)))
    loss: torch.Tensor = model(batch).square().mean()
    return loss


engine = runtime.initialize(model, args.config, loss_fn=loss_of)
for _ in range(20):
    engine.step(torch.ones(engine.samples_per_step, 8))
