"""A script that as a rank crashes after a step: DDP's wrapper lacks the model's own method."""
# mypy: disable-error-code="no-any-return, operator"

import argparse
import os
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--crash_at", type=int, default=1)
parser.add_argument("--leave_at", type=int)
arguments = parser.parse_args()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(rows)

    def sample(self) -> torch.Tensor:
        return self.layer(torch.randn(1, 16))


model: nn.Module = Net()
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 60):
    model(torch.randn(arguments.batch_size, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == arguments.leave_at:
        sys.exit("no more data")
    if step == arguments.crash_at:
        model.sample()
