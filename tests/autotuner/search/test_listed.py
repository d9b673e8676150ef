from __future__ import annotations

from autoconf_launch.autotuner.search import ListedStudy, StopKind
from autoconf_launch.autotuner.space import FailedTrial, Record, Trial
from autoconf_launch.core import Failure, FailureKind, MemoryUse

from ...rows import some
from ..builders import launch, layout_of, measurement, trial_of


def trial(number: int, micro_batch: int = 1, accumulation: int = 8) -> Trial:
    layout = layout_of(f"dp=2 micro={micro_batch} acc={accumulation}")
    return trial_of(number, layout, f"run{number}")


def study(*trials: Trial, most_steps: int = 50, most_s: float = 60.0) -> ListedStudy:
    return ListedStudy(trials, most_steps=most_steps, most_s=most_s)


def measure(one: Trial, step_s: float) -> Record:
    return launch(one, measurement(step_s, samples=16))


def failure(one: Trial, kind: FailureKind, *, free: int = 10) -> Record:
    memory = MemoryUse(free_before_bytes=free, peak_bytes=11, limit_bytes=10)
    outcome = FailedTrial(failure=Failure(kind=kind, detail="why"), memory=memory)
    return launch(one, outcome)


def names(trials: tuple[Trial, ...]) -> list[str]:
    return [one.name for one in trials]


def test_trials_come_in_the_given_order_until_all_were_told() -> None:
    asked = study(trial(0), trial(1), trial(2))
    assert names(asked.ask(2, 0.0)) + names(asked.ask(2, 0.0)) == ["run0", "run1", "run2"]
    asked = study(trial(0))
    (one,) = asked.ask(1, 0.0)
    assert asked.stop_reason() is None
    asked.tell(measure(one, 1.0))
    stop = some(asked.stop_reason())
    assert not stop.is_error
    asked = study(trial(0), trial(1))
    for one, step_s in zip(asked.ask(2, 0.0), (2.0, 1.0), strict=True):
        asked.tell(measure(one, step_s))
    assert asked.best is not None
    assert asked.best.trial.name == "run1"


def test_a_failure_of_the_first_ends_only_a_search_without_others() -> None:
    asked = study(trial(0), trial(1))
    (one,) = asked.ask(1, 0.0)
    asked.tell(failure(one, FailureKind.CRASHED))
    assert names(asked.ask(1, 0.0)) == ["run1"]
    asked = study(trial(0))
    (one,) = asked.ask(1, 0.0)
    asked.tell(failure(one, FailureKind.CRASHED))
    stop = some(asked.stop_reason())
    assert stop.kind is StopKind.NOTHING_MEASURED


def test_memory_that_ran_out_is_tried_once_again_or_rules_out_by_name() -> None:
    asked = study(trial(0, 2, 4), trial(1, 4, 2), trial(2, 1, 8))
    (one,) = asked.ask(1, 0.0)
    asked.tell(failure(one, FailureKind.OUT_OF_MEMORY))
    assert [name for name, _ in asked.ruled_out] == ["run1"]
    assert names(asked.ask(2, 0.0)) == ["run2"]
    asked = study(trial(0), trial(1))
    (one,) = asked.ask(1, 0.0)
    asked.tell(failure(one, FailureKind.OUT_OF_MEMORY, free=1))
    (again,) = asked.ask(1, 0.0)
    assert (again.name, again.attempt) == ("run0", 2)
    asked.tell(failure(again, FailureKind.OUT_OF_MEMORY, free=1))
    assert names(asked.ask(2, 0.0)) == ["run1"]


def test_a_record_counts_once_and_is_not_measured_again() -> None:
    asked = study(trial(0), trial(1))
    asked.tell(measure(trial(0), 1.0))
    assert names(asked.ask(2, 0.0)) == ["run1"]
    asked = study(trial(0))
    asked.tell(measure(trial(0), 1.0))
    asked.tell(measure(trial(0), 0.5))
    assert asked.best is not None
    assert asked.best.measurement is not None
    assert asked.best.measurement.step_s == (1.0,)


def test_a_trial_ends_before_its_steps_or_minutes_are_over() -> None:
    assert study(trial(0), most_steps=9).end_step(trial(0), (1.0, 1.0)) == 9
    assert study(trial(0), most_s=10.0).end_step(trial(0), (3.0, 3.0, 3.0)) == 3
    assert study(trial(0), most_steps=9, most_s=0.0).end_step(trial(0), ()) == 9
