from __future__ import annotations

import pytest

from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.launcher.report.search import drift_findings

from ...autotuner.search.test_drift import (
    CRASH,
    LOADED,
    again,
    steps_of,
    trials,
)


@pytest.mark.parametrize(
    ("steps", "repeated", "outcome", "said"),
    [
        ((1.0, 1.0), 1, CRASH, "t1 failed when it was re-measured (crashed: it"),
        ((1.0, 1.0, LOADED), 0, steps_of(LOADED), "The machine was about 100 % slower"),
        (
            (1.0, 1.0, LOADED),
            2,
            steps_of(1.0),
            "accum 1 took 2,000 ms per step in its trial, 1,000 ms re-measured",
        ),
        ((1.0, 1.0), 0, steps_of(1.0), ""),
    ],
)
def test_a_repeat_that_does_not_agree_is_said(
    steps: tuple[float, ...], repeated: int, outcome: Outcome, said: str
) -> None:
    records = trials(*steps)
    repeat = again(records[repeated], len(steps), outcome, doubted=repeated == 2)
    found = drift_findings(drift(records, [repeat]))
    assert len(found) == bool(said)
    assert said in "".join(found)
