"""Prints how many functions of the probe one timed step calls, by the interpreter's own count."""

import json
import os
import sys
from types import FrameType

import torch
from torch.utils.data import DataLoader, TensorDataset

from autoconf_launch.core import PROBE_VARIABLE, Mode, RankTask
from autoconf_launch.runtime.probe import arm_probe
from autoconf_launch.runtime.probe_report import exit_now

STEPS = 20
torch.set_num_threads(1)
task = RankTask(mode=Mode.MEASURE, folder=sys.argv[1], attempt="count", end_step=1 << 30)
os.environ[PROBE_VARIABLE] = task.to_variable()
arm_probe()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters())
batches = iter(DataLoader(TensorDataset(torch.ones(8 * STEPS, 8)), batch_size=4))
calls: dict[str, int] = {}


def count(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and "/runtime/" in frame.f_code.co_filename:
        calls[frame.f_code.co_name] = calls.get(frame.f_code.co_name, 0) + 1


def step() -> None:
    model(next(batches)[0]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(STEPS):
    step()
sys.setprofile(count)
for _ in range(STEPS):
    step()
sys.setprofile(None)
sys.stdout.write(json.dumps({name: number / STEPS for name, number in calls.items()}))
sys.stdout.flush()
exit_now(0)
