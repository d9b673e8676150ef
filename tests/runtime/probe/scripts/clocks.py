"""A script that replaces the clocks, before or after it imports torch.

Arguments: ``early`` or ``late``, ``frozen`` or ``backward``.
"""

import itertools
import sys
import time

REAL_TIME = time.perf_counter


def replace_clocks() -> None:
    ticks = itertools.repeat(5.0) if sys.argv[2] == "frozen" else itertools.count(1e9, -0.5)
    for name in ("perf_counter", "monotonic", "time"):
        setattr(time, name, lambda: next(ticks))


if sys.argv[1] == "early":
    replace_clocks()

import torch  # noqa: E402
from torch import nn  # noqa: E402

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if sys.argv[1] == "late":
    replace_clocks()
for _ in range(20):
    until = REAL_TIME() + 0.02
    while REAL_TIME() < until:
        pass
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
