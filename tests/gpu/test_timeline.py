"""The timeline of a rank whose losses are on a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autoconf_launch.core import Mode, RankTask
from autoconf_launch.runtime.observe import Made, Timeline, clock_of

MADE = Made(micro_batch=1, accumulation=1)
CUDA = torch.device("cuda", 0)


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    task = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a")
    timeline = Timeline(task, 0, clock_of(CUDA), began_s=time.perf_counter())
    timeline.end(MADE, torch.zeros(1, device=CUDA))
    return timeline


@pytest.fixture
def no_waits() -> Iterator[None]:
    """Torch raises if anything reads a tensor of the GPU in the usual way."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_a_step_ends_without_a_read_that_waits_for_the_device(
    timeline: Timeline, no_waits: None
) -> None:
    for _ in range(300):
        timeline.end(MADE, torch.zeros((), device=CUDA))
    timeline.settle()
    assert len(timeline.records) == 301


def test_losses_of_any_format_arrive_as_they_were(timeline: Timeline) -> None:
    formats = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    losses = [torch.rand((), device=CUDA, dtype=dtype) for dtype in formats]
    for loss in losses:
        timeline.end(MADE, loss)
    timeline.settle()
    assert [r.loss for r in timeline.records[1:]] == [float(loss) for loss in losses]


def test_the_host_queues_a_step_while_the_device_computes_the_one_before(
    timeline: Timeline,
) -> None:
    matrix = torch.randn(8192, 8192, device=CUDA, dtype=torch.bfloat16)
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    drained = []
    for _ in range(6):
        for _ in range(200):
            product = torch.mm(matrix, matrix)
        timeline.end(MADE, product[0, 0].float())
        queued: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        queued.record()
        drained.append(queued.query())  # type: ignore[no-untyped-call]
    if _computes_nothing():
        pytest.skip("this GPU computes nothing, so no queue is ever busy")
    assert not any(drained[1:])


def _computes_nothing() -> bool:
    return float(torch.ones(1, device=CUDA) + 1) != 2.0
