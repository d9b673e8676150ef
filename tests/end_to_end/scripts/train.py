"""A tiny training with a fault on request; what a user's script may do to a tuner."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

FAULT = os.environ.get("FAULT", "")
if FAULT == "import":
    raise ImportError("no module of that kind")

import torch  # noqa: E402

import autoconf_launch.runtime as runtime  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--done")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(args.width, args.width), torch.nn.Linear(args.width, 1)
)
if FAULT == "never_steps":
    sys.exit(0)
if FAULT == "stderr":
    sys.stderr.write("error: this is only a warning\n")


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).square().mean()
    return loss * float("nan") if FAULT == "nan" else loss


engine = runtime.initialize(model, args.config, loss_fn=loss_of)
for step in range(1, args.steps + 1):
    if FAULT == "hang" and step == 2:
        time.sleep(600)
    if FAULT == "surrogate" and engine.samples_per_step == 8:
        raise ValueError("a file named \udc80 is not there")
    if FAULT == "killed" and step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.step(torch.ones(engine.samples_per_step, args.width))
if args.done and engine.rank == 0:
    Path(args.done).write_text(f"{args.steps} steps of {engine.samples_per_step}")
sys.exit(7 if FAULT == "exit_code" else 0)
