from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.finals import Finals, findings, settled
from autoconf_launch.autotuner.objective import OBJECTIVES
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.summary import Summary, summarise_records
from autoconf_launch.autotuner.trial import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout

THROUGHPUT = OBJECTIVES["throughput"]
CRASH = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))


def made(step_s: float) -> Measurement:
    steps = (step_s, step_s * 1.01, step_s * 0.99)
    return Measurement(step_s=steps, samples_per_step=10, world_size=1)


def record(number: int, outcome: Outcome) -> Record:
    layout = Layout(micro_batch=number + 1)
    trial = Trial(number=number, name=f"t{number}", candidate=Candidate(layout=layout), space="z0")
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


SEARCHED = tuple(record(n, made(s)) for n, s in enumerate((3.0, 1.0, 2.0, 1.5, 5.0)))
"""From best to worst: t1, t3, t2, t0, t4."""


def run(finals: Finals, outcomes: dict[str, Outcome]) -> list[str]:
    """Names in the order in which they were asked for; each gets its outcome."""
    asked = []
    while finals.stop_reason() is None:
        (trial,) = finals.ask(1, 0.0)
        asked.append(trial.name)
        outcome = outcomes.get(trial.name.removesuffix("_final"), made(1.0))
        finals.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))
    return asked


def told(outcomes: dict[str, Outcome], wanted: int = 3) -> tuple[Record, ...]:
    finals = Finals(SEARCHED, THROUGHPUT, wanted=wanted)
    run(finals, outcomes)
    return finals.records


def summary_after(finals: tuple[Record, ...]) -> Summary:
    settings, facts = AutotuningSettings(), TrainingFacts()
    searched = summarise_records(SEARCHED, settings, duration_s=1.0)
    return settled(searched, SEARCHED, finals, settings, facts)


def test_the_best_three_and_the_baseline_are_measured_again() -> None:
    finals = Finals(SEARCHED, THROUGHPUT, wanted=3)
    assert run(finals, {}) == ["t1_final", "t3_final", "t2_final", "t0_final"]


def test_a_single_one_is_the_best_alone() -> None:
    assert run(Finals(SEARCHED, THROUGHPUT, wanted=1), {}) == ["t1_final"]


def test_nothing_is_asked_where_nothing_is_wanted_or_measured() -> None:
    assert run(Finals(SEARCHED, THROUGHPUT, wanted=0), {}) == []
    assert run(Finals((record(0, CRASH),), THROUGHPUT, wanted=3), {}) == []


def test_one_that_fails_gives_its_place_to_the_next_best() -> None:
    finals = Finals(SEARCHED, THROUGHPUT, wanted=1)
    assert run(finals, {"t1": CRASH, "t3": CRASH}) == ["t1_final", "t3_final", "t2_final"]


def test_they_run_one_after_another() -> None:
    finals = Finals(SEARCHED, THROUGHPUT, wanted=3)
    assert len(finals.ask(5, 0.0)) == 1
    assert finals.ask(4, 0.0) == ()


def test_they_are_finals_of_their_trials() -> None:
    (trial,) = Finals(SEARCHED, THROUGHPUT, wanted=1).ask(1, 0.0)
    assert trial == replace(SEARCHED[1].trial, name="t1_final", final=True)


def test_those_of_an_earlier_session_are_not_repeated() -> None:
    finals = Finals(SEARCHED, THROUGHPUT, wanted=3)
    for known in told({})[:2]:
        finals.tell(known)
    assert run(finals, {}) == ["t2_final", "t0_final"]


def test_one_of_another_search_is_left_out() -> None:
    finals = Finals(SEARCHED[:1], THROUGHPUT, wanted=1)
    finals.tell(told({})[0])
    assert finals.records == ()


def test_the_best_measured_alone_wins() -> None:
    summary = summary_after(told({"t1": made(1.0), "t3": made(0.5), "t0": made(2.0)}))
    assert summary.winner is not None
    assert summary.winner.trial == SEARCHED[3].trial
    assert summary.rows[-1].best_metric_val == pytest.approx(20.0)
    assert summary.speed_up is not None
    assert summary.speed_up.ratio == pytest.approx(4.0)


def test_trials_are_counted_once() -> None:
    assert [row.num_experiments for row in summary_after(told({})).rows] == [5, 5]


def test_a_confirmation_leaves_the_summary_as_it_is() -> None:
    confirmed = told({"t1": made(1.3)}, wanted=1)
    assert summary_after(confirmed) == summary_after(())


def test_a_winner_that_fails_when_launched_again_does_not_win() -> None:
    finals = told({"t1": CRASH, "t3": made(1.5)}, wanted=1)
    summary = summary_after(finals)
    assert summary.winner == SEARCHED[3]
    assert findings(SEARCHED, finals, THROUGHPUT) == (
        "t1 failed when it was launched again (crashed: it did), so it was passed over.",
    )


@pytest.mark.parametrize(
    ("step_s", "said"),
    [
        pytest.param(1.001, (), id="noise"),
        pytest.param(1.1, (), id="what differs without cause"),
        pytest.param(
            1.25,
            (
                "t1 made 10 samples/s in its trial but 8 in a launch of its own, as the training "
                "will be: expect the latter.",
            ),
            id="a gap",
        ),
    ],
)
def test_a_gap_beyond_the_noise_is_said(step_s: float, said: tuple[str, ...]) -> None:
    finals = told({"t1": made(step_s)}, wanted=1)
    assert findings(SEARCHED, finals, THROUGHPUT) == said


def test_another_winner_is_said() -> None:
    (said,) = findings(SEARCHED, told({"t3": made(0.5)}), THROUGHPUT)
    assert said.startswith("Measured again alone, t3 is better than t1")


def test_nothing_is_said_where_the_choice_stands() -> None:
    assert findings(SEARCHED, told({"t1": made(0.9)}), THROUGHPUT) == ()
