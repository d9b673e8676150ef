"""Scripts that fail, swallow exits or start others; the first argument says which."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

HUGE = 1 << 60


def train(steps: int = 40, batch: int = 8, fail_from: int | None = None, at: int = 3) -> None:
    """An allocation of step ``at`` is refused where a batch has ``fail_from`` samples or more."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(1, steps + 1):
        loss = model(torch.randn(batch, 4)).sum()
        if fail_from is not None and number >= at and batch >= fail_from:
            torch.empty(HUGE)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Greedy(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.where = where

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.where == "forward":
            torch.empty(HUGE)
        outputs = self.layer(inputs)
        if self.where == "backward":
            outputs.register_hook(lambda gradient: torch.empty(HUGE))
        return outputs.sum()


class GreedySGD(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        torch.empty(HUGE)


def greedy(where: str) -> None:
    model = Greedy(where)
    kind = GreedySGD if where == "step" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.1)
    model(torch.randn(2, 4)).backward()
    optimizer.step()


def uncaught() -> None:
    train(fail_from=8)


def in_the_first_step() -> None:
    train(fail_from=8, at=1)


def in_building_the_model() -> None:
    nn.Linear(HUGE >> 20, 1 << 20)


def caught_and_exit_1() -> None:
    try:
        train(fail_from=8)
    except RuntimeError as error:
        print("giving up:", error)
        sys.exit(1)


def caught_and_os_exit() -> None:
    try:
        train(fail_from=8)
    except RuntimeError:
        os._exit(1)


def caught_and_raise_exit() -> NoReturn:
    try:
        greedy(sys.argv[2])
    except RuntimeError:
        raise SystemExit(1) from None
    raise SystemExit(0)


def caught_and_return() -> None:
    try:
        greedy("forward")
    except RuntimeError:
        print("could not train")


def retries_smaller() -> None:
    batch = 8
    while True:
        try:
            model = Sized(limit=4)
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(40):
                model(torch.randn(batch, 4)).backward()
                optimizer.step()
                optimizer.zero_grad()
            return
        except RuntimeError:
            batch //= 2


class Sized(nn.Module):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.layer, self.limit = nn.Linear(4, 1), limit

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) > self.limit:
            torch.empty(HUGE)
        return self.layer(inputs).sum()


def crashes() -> None:
    model = nn.Linear(4, 1)
    model(torch.randn(2, 4)).sum().backward()
    raise KeyError("no such column")


def crashes_with_a_thread() -> None:
    """A thread that never ends keeps the interpreter from ending."""
    threading.Thread(target=threading.Event().wait).start()
    train(fail_from=8)


def raises_in_a_thread() -> None:
    """The training thread; the main one ends with 0."""

    def target() -> NoReturn:
        train(steps=4)
        raise KeyError("no such column")

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def outlives_an_exit() -> None:
    try:
        sys.exit(2)
    except SystemExit:
        print("stays")
    train(steps=4)


def exits_by_name() -> None:
    train(steps=3)
    builtins.exit(code=0)


def writes_to_a_stream_of_its_own() -> None:
    class Twice:
        def write(self, text: str) -> None:
            os.write(1, text.encode())

    sys.stdout = Twice()
    train()


def exits_1_after_steps() -> None:
    train(steps=2)
    sys.exit(1)


def leaves_at_once() -> None:
    train(steps=2)
    os._exit(int(sys.argv[2]))


def swallows_exits() -> None:
    while True:
        try:
            train(steps=100)
        except BaseException as error:
            print("swallowed", type(error))


def diverges() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
    for _ in range(40):
        (model(torch.randn(8, 4)) ** 2).sum().backward()
        optimizer.step()


def helper_trains_first() -> None:
    """A separate script prepares something, with an optimizer too."""
    subprocess.run([sys.executable, __file__, "train", "--small"], check=True)
    train()


def other_processes() -> None:
    """Helpers that import torch, and a tracker, while the training runs."""
    code = "import torch, time; torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum().backward()"
    helper = subprocess.Popen([sys.executable, "-c", code])
    torch.multiprocessing.get_context("spawn").Queue()
    helper.wait()
    train()


def leaves_files() -> None:
    folder = Path("outputs", "2031-05-06", "10-20-30")
    folder.mkdir(parents=True)
    torch.save({"step": 0}, "checkpoint.pt")
    Path(folder, "log.txt").write_text("hello")
    train()


def saves_checkpoints() -> None:
    """Data is prepared before the training, and checkpoints are saved in it."""
    torch.save([1.0], "prepared.pt")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        torch.save(model.state_dict(), "checkpoint.pt")
        with Path("open.pt").open("wb") as file:
            torch.save(model, file)


def breaks_the_probe() -> None:
    steps = next(m for name, m in sys.modules.items() if name.endswith(".observe.steps"))
    steps.StepCounter.backward = None
    train(steps=100)
    print("reached the end")


def usage_error() -> NoReturn:
    import argparse

    argparse.ArgumentParser(prog="train.py").parse_args(["--batch"])
    raise AssertionError


def spawned_rank(rank: int, what: str) -> None:
    train(fail_from=8 if what == "fails" and rank == 1 else None)


def spawns() -> None:
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.multiprocessing.spawn(spawned_group, args=(what,), nprocs=2)


def hogwild() -> None:
    """Two processes train side by side, and are waited for."""
    context = torch.multiprocessing.get_context("fork")
    processes = [context.Process(target=train, args=(100_000_000,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def spawned_group(rank: int, what: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=2
    )
    spawned_rank(rank, what)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("reached the end")
