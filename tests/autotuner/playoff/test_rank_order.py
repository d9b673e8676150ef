from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement import PRIOR, PairedEstimate, estimate_noise
from autoconf_launch.autotuner.playoff import Decision, PlayoffBudget, decide
from autoconf_launch.autotuner.playoff.decision import rank
from autoconf_launch.autotuner.playoff.rank_order import combined_estimate, lead, order_contenders
from autoconf_launch.autotuner.space import AutotuningSettings, Measurement, Record, Trial
from autoconf_launch.core import (
    Candidate,
    Layout,
)

from .test_playoff import CRASH, THROUGHPUT, playoff_of, run, runs_of, steps_of, truth

SLOW_BASELINE = runs_of(3.0, 1.0, 1.05)


def names_in_order(*seconds: float, rounds: int = 1) -> list[str]:
    playoff = playoff_of(SLOW_BASELINE, budget=PlayoffBudget(rounds=rounds))
    run(playoff, truth(*seconds))
    return [contender.name for contender in order_contenders(playoff, THROUGHPUT, PRIOR)]


def weigh(mean: float, *, spread: float = 0.05, count: int = 1, between: float = 0.05) -> float:
    contenders = playoff_of(SLOW_BASELINE).contenders
    found = PairedEstimate(mean=mean, width=1.0, count=count, spread=spread, freedom=3.0)
    noise = replace(PRIOR, between=between)
    return combined_estimate(found, (contenders[1], contenders[0]), THROUGHPUT, noise).mean


def test_before_the_first_round_is_over_the_search_says() -> None:
    playoff = playoff_of(SLOW_BASELINE)
    assert [contender.name for contender in order_contenders(playoff, THROUGHPUT, PRIOR)] == [
        "t1",
        "t2",
        "t0",
    ]


def test_where_one_round_says_little_the_search_says_the_rest() -> None:
    assert names_in_order(3.0, 1.001, 1.0)[:2] == ["t1", "t2"]


def test_where_one_round_says_more_than_the_search_it_decides() -> None:
    assert names_in_order(3.0, 1.2, 1.0)[:2] == ["t2", "t1"]


def test_what_rounds_tell_apart_stands_as_they_say() -> None:
    assert names_in_order(3.0, 1.2, 1.0, rounds=40) == ["t2"]


def test_who_was_shown_to_be_faster_than_the_baseline_goes_first() -> None:
    playoff = playoff_of(runs_of(3.0, 1.0, 0.8), budget=PlayoffBudget(rounds=2))
    wild = {1: 1.5, 2: 0.7}
    run(
        playoff,
        lambda trial: steps_of(
            wild[trial.attempt] if trial.number == 2 else {0: 3.0, 1: 1.1}[trial.number]
        ),
    )
    order = order_contenders(playoff, THROUGHPUT, PRIOR)
    assert [contender.name for contender in order][:2] == ["t1", "t2"]


def test_who_failed_is_not_among_them() -> None:
    playoff = playoff_of(SLOW_BASELINE, budget=PlayoffBudget(rounds=1))
    run(playoff, lambda trial: CRASH if trial.number == 1 else truth(3.0, 1.0, 1.0)(trial))
    assert "t1" not in [
        contender.name for contender in order_contenders(playoff, THROUGHPUT, PRIOR)
    ]


def test_both_say_something() -> None:
    assert -0.05 < weigh(-0.05) < 0.0488


def test_more_rounds_are_worth_more() -> None:
    assert weigh(-0.05, count=10) < weigh(-0.05, count=1)


def test_a_noisy_search_is_worth_little() -> None:
    assert weigh(-0.05, between=10.0) == pytest.approx(-0.05, abs=1e-4)


def test_without_a_round_the_search_is_all() -> None:
    assert weigh(0.0, count=0) == pytest.approx(0.0488, abs=1e-3)


def launch(number: int, step_s: float, *, micro: int, accumulation: int = 1) -> Record:
    """A trial with its own split of a global batch; trial 0 is micro-batch 4 of 8."""
    layout = Layout(micro_batch=micro, accumulation=accumulation)
    steps = (step_s, step_s * 1.01, step_s * 0.99)
    outcome = Measurement(step_s=steps, samples_per_step=layout.global_batch, world_size=1)
    trial = Trial(number=number, name=f"t{number}", candidate=Candidate(layout=layout), space="z0")
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def choose(records: tuple[Record, ...], rounds: int, *factors: float) -> str:
    """First name after `rounds` rounds of steps scaled by these factors."""
    playoff = playoff_of(records, budget=PlayoffBudget(rounds=rounds), near_only=False)
    times = {r.trial.number: r.measurement.mean_step_s for r in records if r.measurement}

    def answer(trial: Trial) -> Measurement:
        step_s = times[trial.number] * factors[trial.number] * (1 + 0.001 * (trial.attempt % 2))
        samples = trial.candidate.layout.global_batch
        return Measurement(step_s=(step_s,) * 3, samples_per_step=samples, world_size=1)

    if rounds:
        run(playoff, answer)
    return rank(records, playoff, THROUGHPUT, estimate_noise(records))[0].trial.name


OWN = launch(0, 0.8, micro=4, accumulation=2)


def test_a_tie_keeps_the_users_own() -> None:
    larger = launch(1, 51.2 / 1.02, micro=512)
    assert choose((OWN, larger), 0) == "t0"
    assert choose((OWN, larger), 1, 1.0, 0.98) == "t0"


def test_a_gain_that_was_shown_changes_the_batch() -> None:
    assert choose((OWN, launch(1, 25.0, micro=512)), 10, 1.0, 1.0) == "t1"


def test_among_equals_the_smallest_change_of_the_batch_is_first() -> None:
    larger, split = launch(1, 25.6, micro=512), launch(2, 0.402, micro=8)
    assert choose((OWN, larger, split), 10, 1.0, 1.0, 1.0) == "t2"


def test_who_is_told_from_the_best_is_not_its_equal() -> None:
    larger, split = launch(1, 25.6, micro=512), launch(2, 0.5, micro=8)
    assert choose((OWN, larger, split), 40, 1.0, 1.0, 1.0) == "t1"


WIDE = (4.0, 0.25)
"""Factors by which steps of t1 are slower than in the search, round by round."""


def after_wide_rounds(ratio: float, factor: float = 1.0) -> tuple[Decision, PairedEstimate]:
    """A study whose t1 was so many times as fast in the search, and ``factor`` of it in rounds."""
    records = (OWN, launch(1, 0.8 / ratio, micro=8))
    playoff = playoff_of(records, budget=PlayoffBudget(rounds=2))

    def answer(trial: Trial) -> Measurement:
        step_s = 0.8 / ratio / factor * WIDE[trial.attempt - 1] if trial.number else 0.8
        return Measurement(step_s=(step_s,) * 3, samples_per_step=8, world_size=1)

    run(playoff, answer)
    noise = estimate_noise(records)
    found = decide(records, playoff.records, (), AutotuningSettings(), noise)
    return found, playoff.compare(playoff.contenders[1], playoff.contenders[0])


def name(found: Decision) -> str | None:
    return found.winner.trial.name if found.winner else None


def test_a_lead_that_wide_rounds_and_the_search_show_together_is_shown() -> None:
    found, rounds = after_wide_rounds(20.0)
    assert not rounds.differs
    assert name(found) == "t1"
    assert found.ties == ()
    assert found.speed_up is not None
    assert 1.0 < found.speed_up.low < 20.0 < found.speed_up.high


@pytest.mark.parametrize(
    ("ratio", "factor"),
    [
        pytest.param(1.1, 1.0, id="noise explains it"),
        pytest.param(20.0, 0.04, id="rounds deny it"),
    ],
)
def test_a_lead_that_search_and_rounds_do_not_show_together_keeps_the_users_own(
    ratio: float, factor: float
) -> None:
    found, _ = after_wide_rounds(ratio, factor)
    assert name(found) == "t0"


def test_the_more_could_have_looked_best_the_more_it_takes_to_be_shown() -> None:
    playoff = playoff_of((OWN, launch(1, 0.6, micro=8)), budget=PlayoffBudget(rounds=1))
    run(playoff, truth(0.8, 0.6))
    pair = playoff.contenders[1], playoff.contenders[0]
    few, many = (lead(pair, playoff, THROUGHPUT, PRIOR, rivals) for rivals in (1, 10_000))
    assert (few.differs, many.differs) == (True, False)
