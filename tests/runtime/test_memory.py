"""The emulated limit holds for a whole process, so each test of it has a fresh one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autoconf_launch.runtime.model import held_bytes
from autoconf_launch.runtime.rank import CpuMeter

SCRIPT = Path(__file__).with_name("allocations.py")
MEGABYTE = 1_000_000


@pytest.fixture
def allocated(launch: Any) -> Any:
    """``allocated(*arguments)``: what ``allocations.py`` says."""

    def run(*arguments: object) -> dict[str, Any]:
        ended = launch(SCRIPT, *map(str, arguments))
        assert ended.exit_codes == (0,), ended.errors
        answer: dict[str, Any] = json.loads(ended.outputs[0])
        return answer

    return run


def test_the_peak_is_what_was_allocated_at_most(allocated: Any) -> None:
    assert 90 * MEGABYTE < allocated(0, 0, 100)["peak_bytes"] < 130 * MEGABYTE


@pytest.mark.parametrize(("megabytes", "fits"), [(30, True), (70, False)])
def test_the_limit_holds(allocated: Any, megabytes: int, fits: bool) -> None:
    assert allocated(50, 0, megabytes)["fits"] is fits


def test_a_lifted_limit_holds_no_more(allocated: Any) -> None:
    assert allocated(50, 0, 70, "lift")["fits"]


def test_threads_that_start_later_take_little_of_the_limit(allocated: Any) -> None:
    assert allocated(90, 0, 50, "threads")["fits"]


def test_a_watched_peak_is_of_live_blocks_and_what_is_kept_later_is_apart(allocated: Any) -> None:
    sizes = allocated(0, 0, 60, "live")
    assert 55 * MEGABYTE < sizes["watched"] < 66 * MEGABYTE
    assert sizes["peak"] == sizes["watched"]
    assert sizes["reserved"] > 110 * MEGABYTE


def test_a_model_that_exists_counts(allocated: Any) -> None:
    assert allocated(50, 30, 30) == {"fits": False, "held": 30}


def test_a_model_larger_than_the_limit_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="but the memory limit is 5"):
        CpuMeter(5, 6).enforce()


def test_bytes_of_a_model_count_shared_weights_once() -> None:
    model = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)])
    first, second = model
    second.weight = first.weight
    assert held_bytes(model) == 4 * 4 * 4


def test_a_function_holds_nothing_yet() -> None:
    assert held_bytes(lambda: nn.Linear(4, 4)) == 0
