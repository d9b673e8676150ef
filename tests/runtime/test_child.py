import os
import time

import pytest
import torch

from autoconf_launch.runtime.rank.child import ChildError, in_child

DEADLINE_S = 20.0


def test_an_answer_of_any_length_comes_back() -> None:
    assert in_child(lambda: "x" * 300_000, timeout_s=DEADLINE_S) == "x" * 300_000


def test_what_the_child_changes_stays_there() -> None:
    seen: list[int] = []

    def work() -> str:
        seen.append(1)
        return str(seen)

    assert (in_child(work, timeout_s=DEADLINE_S), seen) == ("[1]", [])


def test_an_exception_is_told() -> None:
    def work() -> str:
        raise KeyError("no such layer")

    with pytest.raises(ChildError, match="KeyError: 'no such layer'"):
        in_child(work, timeout_s=DEADLINE_S)


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(ChildError, match="died"):
        in_child(lambda: os._exit(3), timeout_s=DEADLINE_S)


def test_a_child_that_hangs_is_killed() -> None:
    def work() -> str:
        time.sleep(DEADLINE_S)
        return "too late"

    with pytest.raises(ChildError, match=r"longer than 0\.1 s"):
        in_child(work, timeout_s=0.1)


def test_tensors_can_be_computed_after_the_parent_used_its_threads() -> None:
    square = torch.ones(500, 500)
    assert (square @ square).sum() > 0

    def work() -> str:
        return str((square @ square)[0, 0].item())

    assert in_child(work, timeout_s=DEADLINE_S) == "500.0"
