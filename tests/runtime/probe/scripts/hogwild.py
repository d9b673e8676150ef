"""Processes that train one model in shared memory, each with an optimizer of its own."""
# mypy: disable-error-code="no-untyped-call"

import sys

import torch
from torch import multiprocessing, nn


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2000):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    shared = nn.Linear(16, 1).share_memory()
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=train, args=(shared,)) for _ in range(int(sys.argv[1]))]
    for process in started:
        process.start()
    for process in started:
        process.join()
