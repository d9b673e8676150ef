"""A data-parallel loop whose batch size decides its fault on one rank; it knows nothing of us."""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
arguments = parser.parse_args()
FAULTS = {
    32: "out_of_memory",  # the largest ones: what is sure rules out all that need more
    31: "out_of_memory_at_once",
    9: "raises",
    10: "raises_before_steps",
    11: "killed",
    12: "hangs",
    13: "swallows",
}
LAST = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
FAULT = FAULTS.get(arguments.batch_size, "") if LAST else ""


def fail(step: int) -> None:
    """Do what the batch size asks for, at its step."""
    if FAULT == "out_of_memory_at_once" or (FAULT == "out_of_memory" and step == 3):
        torch.empty(1 << 50, dtype=torch.uint8)
    if FAULT == "raises" and step == 3:
        raise RuntimeError("step 3 is cursed")
    if FAULT == "killed" and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "hangs" and step == 3:
        time.sleep(600)


if FAULT == "raises_before_steps":
    raise FileNotFoundError("no such data")
torch.manual_seed(0)
model: torch.nn.Module = torch.nn.Linear(16, 1)
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 30):
    loss = model(torch.ones(arguments.batch_size, 16)).square().mean()
    try:
        fail(step)
    except RuntimeError:
        if FAULT == "swallows":
            sys.exit(0)
        raise
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if FAULT == "swallows" and step == 3:
        sys.exit(0)
