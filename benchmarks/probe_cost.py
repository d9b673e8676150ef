"""The cost of the probe in a timed step: interleaved pairs of blocks with it and without.

One process trains one model on one thread; before each block of steps the probe's hooks are taken
away or put back, in an order drawn by chance, so that drift of the machine hits both alike; the
first steps after each change are dropped, since the interpreter adapts to it. Costs are in the
thread's processor time, which is the wall time on an idle machine; the wall time of each kind is
given, too. Prints JSON; with an argument it writes the JSON to that path.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

PAIRS = 100
BLOCK, DROPPED = 10, 3
"""Steps of a block that count, and steps before them."""
WARM_UP = 20
SIZES = {"tiny": (64, 8, 2), "small": (256, 32, 4), "medium": (512, 64, 6)}
"""Width, batch and blocks."""


class Switch:
    """Removes the probe's hooks from torch, and puts them back."""

    def __init__(self, bare: dict[str, Any]) -> None:
        self._bare = bare
        self._armed = _patch_points()
        self._hooks: dict[int, Any] = {}

    def bare(self, root: nn.Module) -> None:
        """Set everything as if the probe had never been there."""
        _patch(self._bare)
        self._hooks = dict(_global_optimizer_post_hooks)
        self._root_hooks = [dict(root._forward_pre_hooks), dict(root._forward_hooks)]
        _global_optimizer_post_hooks.clear()
        root._forward_pre_hooks.clear()
        root._forward_hooks.clear()

    def arm(self, root: nn.Module) -> None:
        """Set everything as the probe has it in timed steps."""
        _patch(self._armed)
        _global_optimizer_post_hooks.update(self._hooks)
        root._forward_pre_hooks.update(self._root_hooks[0])
        root._forward_hooks.update(self._root_hooks[1])


def _patch_points() -> dict[str, Any]:
    loader: Any = _BaseDataLoaderIter
    return {"backward": torch.autograd.backward, "next": loader.__next__}


def _patch(what: dict[str, Any]) -> None:
    loader: Any = _BaseDataLoaderIter
    torch.autograd.backward = what["backward"]
    loader.__next__ = what["next"]


def arm(folder: Path) -> Switch:
    """Start the probe in this process, for more steps than there will be."""
    from autoconf_launch.core import Mode, RankTask
    from autoconf_launch.core.rank import PROBE_VARIABLE
    from autoconf_launch.runtime.probe import arm_probe

    bare = _patch_points()
    task = RankTask(mode=Mode.MEASURE, folder=str(folder), attempt="cost", end_step=1 << 30)
    os.environ[PROBE_VARIABLE] = task.to_variable()
    arm_probe()
    return Switch(bare)


def make_training(size: str) -> tuple[nn.Module, Callable[[], None]]:
    """A model, and one step of its training."""
    width, batch, blocks = SIZES[size]
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(blocks)]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(batch * 8, width))
    batches = iter(())

    def next_batch() -> Tensor:
        nonlocal batches
        for batch_of_loader in batches:
            return batch_of_loader[0]
        batches = iter(DataLoader(data, batch_size=batch))
        return next_batch()

    def step() -> None:
        model(next_batch()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def measure(size: str, switch: Switch) -> dict[str, Any]:
    """The median difference within a pair, against the median step without the probe."""
    model, step = make_training(size)
    for _ in range(WARM_UP):
        step()
    taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(PAIRS):
        for is_armed in random.sample((True, False), 2):
            if not is_armed:
                switch.bare(model)
            taken[is_armed].append(block(step))
            if not is_armed:
                switch.arm(model)
    pairs = zip(taken[True], taken[False], strict=True)
    differences = [armed[0] - bare[0] for armed, bare in pairs]
    bare_s = statistics.median(thread_s for thread_s, _ in taken[False])
    cost_s = statistics.median(differences)
    return {
        "size": size,
        "pairs": PAIRS,
        "steps_each": BLOCK,
        "bare_step_ms": bare_s * 1e3,
        "cost_ms": cost_s * 1e3,
        "cost_95_percent_interval_ms": [bound * 1e3 for bound in median_interval(differences)],
        "cost_share": cost_s / bare_s,
        "bare_wall_ms": statistics.median(wall_s for _, wall_s in taken[False]) * 1e3,
        "armed_wall_ms": statistics.median(wall_s for _, wall_s in taken[True]) * 1e3,
    }


def block(step: Callable[[], None]) -> tuple[float, float]:
    """Thread and wall seconds of the median step of a block."""
    for _ in range(DROPPED):
        step()
    thread_s, wall_s = [], []
    for _ in range(BLOCK):
        before_wall_s, before_thread_s = time.perf_counter(), time.thread_time()
        step()
        thread_s.append(time.thread_time() - before_thread_s)
        wall_s.append(time.perf_counter() - before_wall_s)
    return statistics.median(thread_s), statistics.median(wall_s)


def median_interval(values: list[float]) -> tuple[float, float]:
    """Interval of the median, by order statistics (binomial, normal approximation)."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    return ordered[max(0, round(middle - half))], ordered[
        min(len(values) - 1, round(middle + half))
    ]


def main() -> None:
    """Measure every size in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", nargs="?", type=Path, help="also write it there")
    output = parser.parse_args().output
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    for size in SIZES:
        rows.append(measure_in_child(size))
    machine = {"torch": torch.__version__, "machine": platform.machine(), "cores": os.cpu_count()}
    document = json.dumps({"environment": machine, "rows": rows}, indent=2)
    if output is not None:
        output.write_text(document + "\n")
    print(document)


def measure_in_child(size: str) -> dict[str, Any]:
    """Measure a size with a separate process and probe: a probe follows one training."""
    read, write = os.pipe()
    if os.fork() == 0:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(size, arm(Path(folder)))
        os.write(write, json.dumps(row).encode())
        from autoconf_launch.runtime.probe_report.ending import exit_now

        exit_now(0)
    os.close(write)
    os.wait()
    with os.fdopen(read) as answer:
        row_read: dict[str, Any] = json.loads(answer.read())
    return row_read


if __name__ == "__main__":
    main()
