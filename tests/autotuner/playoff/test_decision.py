from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff import (
    TIE_WIDTH,
    Decision,
    Launches,
    MeaningVerdict,
    PlayoffBudget,
    Summary,
    TuneVerdict,
    summarise_launches,
)
from autoconf_launch.autotuner.space import AutotuningSettings, Outcome, Record
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.report import label, table_text, trial_rows
from autoconf_launch.launcher.report.search import (
    findings,
    refusal_text,
)

from .played import (
    CRASH,
    playoff_of,
    run,
    runs_of,
    steps_of,
    truth,
)

SLOW_BASELINE = runs_of(3.0, 1.0, 1.02)
LARGE_SEARCH = runs_of(3.0, 1.0, 1.02, 1.05, 1.03, 2.9)
T1, T2 = (label(record.trial.candidate) for record in SLOW_BASELINE[1:])


def rounds(records: tuple[Record, ...], *seconds: float) -> tuple[Record, ...]:
    playoff = playoff_of(records)
    run(playoff, truth(*seconds))
    return playoff.records


def soak(name: str, records: tuple[Record, ...], outcome: Outcome) -> Record:
    known = next(record for record in records if record.trial.name == name)
    trial = replace(known.trial, name=f"{name}_soak", soak_steps=5)
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def summary(
    records: tuple[Record, ...], playoff: tuple[Record, ...] = (), soaks: tuple[Record, ...] = ()
) -> Summary:
    launches = Launches(records=records, playoff=playoff, soaks=soaks)
    return summarise_launches(launches, AutotuningSettings(), duration_s=1.0)


def decision(*launches: tuple[Record, ...]) -> Decision:
    return summary(*launches).decision


def winner(found: Decision) -> str:
    assert found.winner is not None
    return found.winner.trial.name


def test_without_anything_after_it_the_search_stands() -> None:
    found = decision(SLOW_BASELINE)
    assert (winner(found), found.paired, found.rounds) == ("t1", False, 0)


def test_the_best_of_the_rounds_wins() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.2, 1.0))
    assert winner(found.decision) == "t2"
    assert found.rows[-1].best_exp_name == "t2"
    assert found.rows[-1].best_metric_val == pytest.approx(10.0, rel=0.01)


def test_a_speed_of_the_search_is_marked_and_never_above_one_of_the_rounds() -> None:
    *met, other, alone = runs_of(3.0, 1.0, 1.02, 1.5, 2.5)
    records = (*met, other, replace(alone, trial=replace(alone.trial, space="z1")))
    slower = (15.0, 5.0, 5.1, 7.5, 12.5)
    playoff = playoff_of(records, wanted=2, budget=PlayoffBudget(rounds=2))
    run(playoff, truth(*slower))
    found = summary(records, playoff.records)
    rows = [(row.tuning_space, row.best_exp_name, row.search_only) for row in found.rows]
    assert rows == [("z0", "t1", False), ("z1", "t4", True), ("global", "t1", False)]
    values = [row.best_metric_val or 0.0 for row in found.rows]
    assert values[0] == values[-1] < values[1]
    assert f"{values[1]:.6g} (search only) | t4" in table_text(found)


def test_the_speed_up_is_from_the_rounds_and_not_from_the_search() -> None:
    found = decision(SLOW_BASELINE, rounds(SLOW_BASELINE, 1.5, 1.0, 1.0))
    assert found.paired
    assert found.speed_up is not None
    assert found.speed_up.ratio == pytest.approx(1.5, rel=0.02)
    assert found.speed_up.low > 1.0


@pytest.mark.parametrize(
    ("seconds", "rounds", "ties", "undecided"),
    [
        pytest.param((3.0, 1.0, 1.3), 20, [], [], id="surely slower"),
        pytest.param((3.0, 1.0, 1.0), 20, ["t2"], [], id="not told apart"),
        pytest.param((3.0, 1.0, 1.05), 1, [], ["t2"], id="not separated in one round"),
    ],
)
def test_what_is_not_slower_is_a_tie_or_undecided(
    seconds: tuple[float, ...], rounds: int, ties: list[str], undecided: list[str]
) -> None:
    playoff = playoff_of(SLOW_BASELINE, budget=PlayoffBudget(rounds=rounds))
    run(playoff, truth(*seconds))
    found = decision(SLOW_BASELINE, playoff.records)
    assert ([*dict(found.ties)], [*dict(found.undecided)]) == (ties, undecided)
    assert (found.width > TIE_WIDTH) == bool(undecided)


def test_speeds_of_the_rounds_have_the_judged_ratios_and_are_marked_as_computed() -> None:
    playoff = rounds(SLOW_BASELINE, 3.0, 1.0, 1.3)
    found = summary(SLOW_BASELINE, playoff, (soak("t1", SLOW_BASELINE, steps_of(2.0)),))
    rows = trial_rows(found)
    seconds = [row.measurement.mean_step_s for row in rows if row.measurement]
    assert found.decision.speed_up is not None
    assert seconds[0] / seconds[1] == pytest.approx(found.decision.speed_up.ratio)
    assert seconds[1] == pytest.approx(2.0)
    assert [row.judged_in for row in rows] == [
        "playoff ratio",
        "verification run",
        "playoff ratio",
    ]
    assert [row.status for row in rows] == ["playoff ratio", "best", "playoff ratio"]
    assert "speeds marked playoff ratio are computed" in table_text(found)


def test_what_was_not_in_the_rounds_is_no_tie() -> None:
    records = runs_of(3.0, 1.0, 1.02, 1.05, 2.9)
    playoff = playoff_of(records, wanted=2, budget=PlayoffBudget(rounds=2))
    run(playoff, truth(3.0, 1.0, 1.02, 1.05, 2.9))
    found = decision(records, playoff.records)
    assert dict(found.ties).keys() <= {"t1", "t2"}


def test_rounds_that_are_too_noisy_to_rank_are_inconclusive() -> None:
    close = runs_of(1.0, 1.01)
    playoff = playoff_of(close, budget=PlayoffBudget(rounds=2))
    wild = {(0, 1): 1.12, (0, 2): 0.9}
    run(playoff, lambda trial: steps_of(wild.get((trial.number, trial.attempt), 1.0)))
    assert decision(close, playoff.records).verdict is TuneVerdict.INCONCLUSIVE


def test_trials_are_counted_once() -> None:
    found = summary(LARGE_SEARCH, rounds(LARGE_SEARCH, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0))
    assert [row.num_experiments for row in found.rows] == [6, 6]


NAN = replace(CRASH, failure=replace(CRASH.failure, kind=FailureKind.NAN))


@pytest.mark.parametrize(
    ("outcomes", "winner"),
    [
        pytest.param({"t1": CRASH, "t2": steps_of(1.02)}, "t2", id="a configuration that passed"),
        pytest.param(dict.fromkeys(("t1", "t2", "t0"), NAN), None, id="none if none passed"),
        pytest.param({"t1": NAN}, "t2", id="the best not refused when time was up"),
    ],
)
def test_the_verification_run_decides_whatever_was_faster(
    outcomes: dict[str, Outcome], winner: str | None
) -> None:
    soaks = tuple(soak(name, SLOW_BASELINE, made) for name, made in outcomes.items())
    found = decision(SLOW_BASELINE, (), soaks)
    assert (found.winner.trial.name if found.winner else None) == winner
    assert found.soak is not None
    assert refusal_text(found.soak.refused[0]).startswith("t1 failed its verification run")
    assert winner is not None or (found.speed_up, found.ties) == (None, ())


def test_the_losses_of_the_winner_are_compared_with_the_baselines() -> None:
    found = decision(SLOW_BASELINE)
    assert found.meaning is not None
    assert found.meaning.verdict is MeaningVerdict.NOT_COMPARED


def torn(records: tuple[Record, ...], *seconds: float) -> tuple[Record, ...]:
    """A first round whose baseline's launch, the last one, was interrupted."""
    playoff = playoff_of(records, budget=PlayoffBudget(rounds=1))
    run(playoff, truth(*seconds))
    return tuple(record for record in playoff.records if record.trial.number)


def test_a_round_that_was_torn_before_the_baseline_says_nothing_of_the_gain() -> None:
    found = decision(SLOW_BASELINE, torn(SLOW_BASELINE, 3.0, 1.3, 1.0))
    assert not found.paired
    assert found.speed_up is None


def test_who_failed_in_a_torn_round_is_no_tie() -> None:
    close = runs_of(1.0, 1.01)
    playoff = playoff_of(close)
    run(playoff, lambda trial: steps_of(1.01) if trial.number else CRASH)
    found = decision(close, playoff.records)
    assert (winner(found), found.rounds, found.ties) == ("t1", 0, ())


def test_the_baseline_has_no_speed_up_over_itself() -> None:
    fast = runs_of(1.0, 1.2, 1.25)
    assert decision(fast).speed_up is None
    assert decision(fast, rounds(fast, 1.0, 1.2, 1.25)).speed_up is None


def test_nothing_is_said_where_the_choice_stands() -> None:
    assert findings(summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.3))) == ()


def test_who_fails_in_a_round_is_passed_over_and_that_is_said() -> None:
    playoff = playoff_of(SLOW_BASELINE)
    run(playoff, lambda trial: CRASH if trial.number == 1 else truth(3.0, 1.0, 1.0)(trial))
    assert winner(decision(SLOW_BASELINE, playoff.records)) == "t2"
    said = findings(summary(SLOW_BASELINE, playoff.records))
    assert said[0].startswith("t1 failed in the playoff (crashed: it did)")


def test_a_journal_of_before_with_one_final_of_the_best_can_be_read() -> None:
    trial = replace(SLOW_BASELINE[1].trial, name="t1_final", final=True)
    old = (Record(trial=trial, outcome=steps_of(1.3), wall_s=1.0),)
    assert decision(SLOW_BASELINE, old).winner is not None


def test_where_what_was_launched_again_failed_the_search_says_what_is_next() -> None:
    playoff = playoff_of(runs_of(3.0, 1.0, 1.01, 1.02, 1.03, 1.04), wanted=1)
    run(playoff, lambda trial: CRASH)
    order = decision(runs_of(3.0, 1.0, 1.01, 1.02, 1.03, 1.04), playoff.records).order
    assert [record.trial.name for record in order][:2] == ["t2", "t3"]


def test_without_a_playoff_all_rows_have_the_speeds_of_the_search() -> None:
    soaks = (soak("t1", SLOW_BASELINE, steps_of(2.0)),)
    found = summary(SLOW_BASELINE, (), soaks)
    best = next(one for one in SLOW_BASELINE if one.trial.name == "t1").measurement
    assert best is not None
    assert found.rows[-1].best_metric_val == best.throughput_per_s
    assert found.rows[-1].best_metric_val == max(row.best_metric_val or 0 for row in found.rows)


def test_with_a_playoff_all_rows_have_the_speed_of_the_verification_run() -> None:
    playoff = rounds(SLOW_BASELINE, 1.5, 1.0, 1.2)
    found = summary(SLOW_BASELINE, playoff, (soak("t1", SLOW_BASELINE, steps_of(2.0)),))
    speeds = {r.trial.name: r.measurement.mean_step_s for r in found.shown if r.measurement}
    assert speeds["t1"] == pytest.approx(2.0)
    assert speeds["t0"] == pytest.approx(3.0, rel=0.01)
    assert found.rows[-1].best_metric_val == pytest.approx(10 / 2.0)
