from pathlib import Path

import pytest

from autoconf_launch.autotuner.space.trial import FailedTrial, Measurement, Record, Trial
from autoconf_launch.core import Candidate, FailureKind, Layout, Mode, RankTask
from autoconf_launch.launcher.backends.local import LocalBackend
from autoconf_launch.launcher.backends.replay import ReplayBackend
from autoconf_launch.launcher.plan import LaunchPlan

from .conftest import Lab


def record_of(name: str, step_s: float, *, attempt: int = 1) -> Record:
    trial = Trial(
        number=0, name=name, candidate=Candidate(layout=Layout()), space="z0", attempt=attempt
    )
    outcome = Measurement(step_s=(step_s,), samples_per_step=1, world_size=1)
    return Record(trial=trial, outcome=outcome, wall_s=7.0)


def plan_of(name: str) -> LaunchPlan:
    task = RankTask(mode=Mode.MEASURE, folder="nowhere", attempt="now")
    return LaunchPlan(name=name, ranks=(), working_directory="/", task=task)


def answer(backend: ReplayBackend, name: str) -> object:
    end = backend.poll([backend.submit(plan_of(name))])[0]
    assert end is not None
    return end.outcome


def test_each_attempt_gets_its_own_answer_in_order() -> None:
    backend = ReplayBackend([record_of("a", 2.0, attempt=2), record_of("a", 1.0)])
    answers = [answer(backend, "a") for _ in range(2)]
    assert [one.step_s for one in answers if isinstance(one, Measurement)] == [(1.0,), (2.0,)]


@pytest.mark.parametrize("name", ["unknown", "used up"])
def test_a_name_without_a_record_left_fails_and_says_so(name: str) -> None:
    backend = ReplayBackend([record_of("used up", 1.0)])
    answer(backend, "used up")
    outcome = answer(backend, name)
    assert isinstance(outcome, FailedTrial)
    assert (outcome.failure.kind, outcome.failure.detail) == (
        FailureKind.CRASHED,
        f"the journal holds no further record of {name}, so it cannot be replayed",
    )


def test_the_time_is_that_of_the_record() -> None:
    backend = ReplayBackend([record_of("a", 1.0)])
    end = backend.poll([backend.submit(plan_of("a"))])[0]
    assert end is not None
    assert end.wall_s == 7.0


def test_a_job_of_another_backend_is_refused(lab: Lab) -> None:
    job = ReplayBackend().submit(plan_of("a"))
    with pytest.raises(TypeError, match="another backend"):
        LocalBackend().poll([job])


def test_no_file_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer(ReplayBackend([record_of("a", 1.0)]), "a")
    assert list(tmp_path.iterdir()) == []
