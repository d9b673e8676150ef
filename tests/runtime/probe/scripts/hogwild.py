"""Processes that train one model in shared memory, each with a separate optimizer."""
# mypy: disable-error-code="no-untyped-call"

import sys
from multiprocessing.synchronize import Barrier

import torch
from torch import multiprocessing, nn


def train(model: nn.Module, side_by_side: Barrier) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(2000):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 1:  # whoever starts last has made steps, too, before the first one ends
            side_by_side.wait()


if __name__ == "__main__":
    shared = nn.Linear(16, 1).share_memory()
    context = multiprocessing.get_context("fork")
    processes = int(sys.argv[1])
    given = (shared, context.Barrier(processes))
    started = [context.Process(target=train, args=given) for _ in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join()
