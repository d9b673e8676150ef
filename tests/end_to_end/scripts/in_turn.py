"""An external script that works without neighbours; with them it does what its argument says."""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

AT = 6
SLOW_S = 0.4
HALFWAY = threading.Event()


def train(what: str) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(1, 101):
        if number == AT:
            misbehave(what)
        if what == "is_slow":
            time.sleep(SLOW_S)
        model(torch.randn(8, 4)).sum().backward()
        if dist.is_initialized():
            dist.all_reduce(model.weight.grad)
        optimizer.step()


def misbehave(what: str) -> None:
    if what == "raises":
        raise KeyError("no such column")
    if what == "is_killed" or (what == "loses_a_rank" and dist.get_rank() == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hangs":
        time.sleep(3600)
    if what == "is_ended_by_a_signal":
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
        signal.setitimer(signal.ITIMER_REAL, SLOW_S / 2)
    HALFWAY.set()


def main() -> None:
    what = sys.argv[1]
    if what == "never_steps":
        time.sleep(3600)
    if what == "trains_in_a_thread":
        threading.Thread(target=train, args=("",), daemon=True).start()
        HALFWAY.wait()
        time.sleep(SLOW_S / 2)
    else:
        train(what)


if __name__ == "__main__":
    main()
