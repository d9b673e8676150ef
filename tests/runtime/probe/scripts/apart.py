"""Ranks that were launched together and train apart, or exchange by hand."""
# mypy: disable-error-code="no-untyped-call"

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

if "RANK" in os.environ:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    if "by_hand" in sys.argv:
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
    optimizer.step()
