"""Messages about the runs of a search on this machine."""

from __future__ import annotations

import math

import pytest

from autoconf_launch.autotuner.space import Conditions, FailedTrial, Measurement, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout
from autoconf_launch.nemo.inference_search.local_runs import busy_note, per_gpu_objective


def record(load: float | None) -> Record:
    failure = Failure(kind=FailureKind.CRASHED, detail="it ended")
    trial = Trial(number=0, name="a", candidate=Candidate(layout=Layout()), space="inference")
    return Record(
        trial=trial,
        outcome=FailedTrial(failure=failure),
        wall_s=1.0,
        conditions=Conditions(load_before=load),
    )


def test_the_best_so_far_is_that_of_the_recommendation() -> None:
    one, two = (
        Measurement(step_s=(s,), samples_per_step=8, world_size=ranks, memory=None)
        for s, ranks in ((4.0, 1), (2.5, 2))
    )
    free, bounded = per_gpu_objective(math.inf), per_gpu_objective(3.0)
    assert free.value(one) == 2.0 > (free.value(two) or 0.0)
    assert bounded.value(one) is None
    assert bounded.value(two) == pytest.approx(1.6)


def test_other_work_on_the_cores_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert busy_note([record(0.5), record(4.9), record(None)], 2) == ""
    text = busy_note([record(0.5), record(8.9), record(19.2)], 2)
    assert text.startswith("Other work ran beside 2 of 3 points (load up to 19 on 2 cores)")
    assert "search again with --fresh" in text
