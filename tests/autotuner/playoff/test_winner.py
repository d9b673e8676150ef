from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.playoff.contenders import FinalsBudget
from autoconf_launch.autotuner.playoff.meaning import MeaningVerdict
from autoconf_launch.autotuner.playoff.past_rounds import replayed
from autoconf_launch.autotuner.playoff.playoff import Finals
from autoconf_launch.autotuner.playoff.summary import Summary, summarise_records
from autoconf_launch.autotuner.playoff.winner import findings, safe_order, settled
from autoconf_launch.autotuner.search.optimality_bound import OptimalityBound
from autoconf_launch.autotuner.search.stop import good_enough
from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.autotuner.space.trial import Outcome, Record
from autoconf_launch.core import (
    FailureKind,
    Optimizer,
)
from autoconf_launch.launcher.report.search import certificate_text, stop_text

from .test_playoff import ALIKE, CRASH, SEARCHED, THROUGHPUT, made, run, searched, truth

SLOW_BASELINE = searched(3.0, 1.0, 1.02)


def rounds(records: tuple[Record, ...], *seconds: float) -> tuple[Record, ...]:
    finals = Finals(records, THROUGHPUT)
    run(finals, truth(*seconds))
    return finals.records


def soaked(name: str, records: tuple[Record, ...], outcome: Outcome) -> Record:
    known = next(record for record in records if record.trial.name == name)
    trial = replace(known.trial, name=f"{name}_soak", soak_steps=5)
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def summary(
    records: tuple[Record, ...], finals: tuple[Record, ...] = (), soaks: tuple[Record, ...] = ()
) -> Summary:
    settings, optimizer = AutotuningSettings(), Optimizer()
    before = summarise_records(records, settings, duration_s=1.0)
    return settled(before, records, finals, settings, optimizer, soaks)


def winner(found: Summary) -> str:
    assert found.winner is not None
    return found.winner.trial.name


def test_without_anything_after_it_the_search_stands() -> None:
    found = summary(SLOW_BASELINE)
    assert (winner(found), found.paired, found.rounds) == ("t1", False, 0)


def test_the_best_of_the_rounds_wins() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.2, 1.0))
    assert winner(found) == "t2"
    assert found.rows[-1].best_exp_name == "t2"
    assert found.rows[-1].best_metric_val == pytest.approx(10.0, rel=0.01)


def test_the_speed_up_is_from_the_rounds_and_not_from_the_search() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 1.5, 1.0, 1.0))
    assert found.paired
    assert found.speed_up is not None
    assert found.speed_up.ratio == pytest.approx(1.5, rel=0.02)
    assert found.speed_up.low > 1.0


def test_who_is_surely_slower_in_the_rounds_is_no_tie() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.3))
    assert found.ties == ()


def test_who_is_not_told_apart_is_a_tie() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.0))
    assert len(found.ties) == 1


def test_what_only_the_search_met_is_near_and_no_tie() -> None:
    records = searched(3.0, 1.0, 1.02, 1.05, 2.9)
    finals = Finals(records, THROUGHPUT, wanted=2, budget=FinalsBudget(rounds=2))
    run(finals, truth(3.0, 1.0, 1.02, 1.05, 2.9))
    found = summary(records, finals.records)
    assert found.near == ("t3",)
    assert "t3" not in found.ties


def test_a_machine_that_slowed_down_makes_nothing_of_the_search_look_near() -> None:
    records = searched(3.0, 1.0, 1.0, 1.6)
    found = summary(records, rounds(records, 9.0, 3.0, 3.0, 4.8))
    assert "t3" not in (*found.ties, *found.near)


def test_a_tie_comes_with_what_could_be_told_apart() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.0))
    assert found.ties
    assert found.resolution is not None
    assert found.resolution.rounds == found.rounds


def test_without_a_tie_nothing_is_said_of_the_resolution() -> None:
    found = summary(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.3))
    assert found.resolution is None


def test_trials_are_counted_once() -> None:
    found = summary(SEARCHED, rounds(SEARCHED, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0))
    assert [row.num_experiments for row in found.rows] == [6, 6]


def test_who_passed_the_soak_wins_though_another_was_faster() -> None:
    soaks = (soaked("t1", SLOW_BASELINE, CRASH), soaked("t2", SLOW_BASELINE, made(1.02)))
    found = summary(SLOW_BASELINE, (), soaks)
    assert winner(found) == "t2"
    assert found.soak is not None
    assert found.soak.refused[0].startswith("t1 failed its verification run")


def test_where_none_passed_there_is_no_winner() -> None:
    nan = replace(CRASH, failure=replace(CRASH.failure, kind=FailureKind.NAN))
    soaks = tuple(soaked(name, SLOW_BASELINE, nan) for name in ("t1", "t2", "t0"))
    found = summary(SLOW_BASELINE, (), soaks)
    assert (found.winner, found.speed_up, found.ties) == (None, None, ())


def test_where_time_was_up_before_any_passed_the_best_that_was_not_refused_wins() -> None:
    nan = replace(CRASH, failure=replace(CRASH.failure, kind=FailureKind.NAN))
    found = summary(SLOW_BASELINE, (), (soaked("t1", SLOW_BASELINE, nan),))
    assert winner(found) == "t2"


def certified(finals: tuple[Record, ...]) -> Summary:
    settings, optimizer = AutotuningSettings(), Optimizer()
    bound = OptimalityBound(untried=1, possible_gain_C=np.zeros(1), expected_gain=0.0)
    before = summarise_records(SLOW_BASELINE, settings, duration_s=1.0, stop=good_enough(bound))
    before = replace(before, optimality_bound=bound)
    return settled(before, SLOW_BASELINE, finals, settings, optimizer)


def test_what_was_said_of_the_searchs_best_names_it_where_another_one_won() -> None:
    found = certified(rounds(SLOW_BASELINE, 3.0, 1.2, 1.0))
    assert winner(found) == "t2"
    for sentence in (certificate_text(found) or "", stop_text(found)):
        assert sentence.endswith("than the best. (Said of t1, the best of the search.)")


def test_where_the_searchs_best_won_no_name_is_needed() -> None:
    found = certified(rounds(SLOW_BASELINE, 3.0, 1.0, 1.3))
    assert certificate_text(found) == "1 configuration left, provably slower than the best."


def test_the_losses_of_the_winner_are_compared_with_the_baselines() -> None:
    found = summary(SLOW_BASELINE)
    assert found.meaning is not None
    assert found.meaning.verdict is MeaningVerdict.NOT_COMPARED


def test_another_winner_than_the_searchs_is_said() -> None:
    (said,) = findings(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.3, 1.0), THROUGHPUT)
    assert said.startswith("Re-measured in rounds, t2 is better than t1")


def in_turns(records: tuple[Record, ...], *seconds: float) -> tuple[Record, ...]:
    finals = Finals(records, THROUGHPUT)
    run(finals, truth(*seconds), slots=3)
    return finals.records


def test_in_turn_is_said_of_launches_that_took_turns() -> None:
    side_by_side = searched(3.0, 1.0, 1.02, peak=20)
    finals = in_turns(side_by_side, 3.0, 1.3, 1.0)
    (said,) = findings(side_by_side, finals, THROUGHPUT)
    assert said.startswith("Re-measured in turn, t2 is better than t1")
    assert summary(side_by_side, finals).in_turn


def test_a_tie_that_the_searchs_best_does_not_lead_is_not_called_better() -> None:
    finals = Finals(SLOW_BASELINE, THROUGHPUT, budget=FinalsBudget(rounds=1))
    run(finals, truth(3.0, 1.08, 1.0))
    (said,) = findings(SLOW_BASELINE, finals.records, THROUGHPUT)
    assert said == (
        "Re-measured in rounds, t2 leads t1, which was best in the search; they are "
        "tied within noise."
    )


def test_who_leads_one_round_by_a_hair_does_not_displace_the_searchs_best() -> None:
    finals = Finals(SLOW_BASELINE, THROUGHPUT, budget=FinalsBudget(rounds=1))
    run(finals, truth(3.0, 1.001, 1.0))
    assert winner(summary(SLOW_BASELINE, finals.records)) == "t1"
    assert findings(SLOW_BASELINE, finals.records, THROUGHPUT) == ()


def torn(records: tuple[Record, ...], *seconds: float) -> tuple[Record, ...]:
    """A first round whose baseline's launch, the last one, was interrupted."""
    finals = Finals(records, THROUGHPUT, budget=FinalsBudget(rounds=1))
    run(finals, truth(*seconds))
    return tuple(record for record in finals.records if record.trial.number)


def test_a_round_that_was_torn_is_none() -> None:
    found = summary(SLOW_BASELINE, torn(SLOW_BASELINE, 3.0, 1.3, 1.0))
    assert (winner(found), found.rounds, found.paired) == ("t1", 0, False)
    assert found.speed_up == summary(SLOW_BASELINE).speed_up


def test_a_baseline_that_no_whole_round_met_is_a_tie_by_the_search() -> None:
    close = searched(1.01, 1.0, 1.02)
    found = summary(close, torn(close, 1.01, 1.0, 1.02))
    assert winner(found) == "t0"
    assert "t1" in found.ties


def test_who_failed_in_a_torn_round_is_no_tie() -> None:
    close = searched(1.0, 1.01)
    finals = Finals(close, THROUGHPUT)
    run(finals, lambda trial: made(1.01) if trial.number else CRASH)
    found = summary(close, finals.records)
    assert (winner(found), found.rounds, found.ties) == ("t1", 0, ())


def test_the_baseline_has_no_speed_up_over_itself() -> None:
    fast = searched(1.0, 1.2, 1.25)
    assert summary(fast).speed_up is None
    assert summary(fast, rounds(fast, 1.0, 1.2, 1.25)).speed_up is None


def test_nothing_is_said_where_the_choice_stands() -> None:
    assert findings(SLOW_BASELINE, rounds(SLOW_BASELINE, 3.0, 1.0, 1.3), THROUGHPUT) == ()


def test_who_fails_in_a_round_is_passed_over_and_that_is_said() -> None:
    finals = Finals(SLOW_BASELINE, THROUGHPUT)
    run(finals, lambda trial: CRASH if trial.number == 1 else truth(3.0, 1.0, 1.0)(trial))
    assert winner(summary(SLOW_BASELINE, finals.records)) == "t2"
    said = findings(SLOW_BASELINE, finals.records, THROUGHPUT)
    assert said[0].startswith("t1 failed in the playoff (crashed: it did)")


@pytest.mark.parametrize(
    ("step_s", "said"), [(1.1, 0), pytest.param(1.25, 1, id="beyond what has no cause")]
)
def test_a_soak_that_measures_something_else_is_said(step_s: float, said: int) -> None:
    soaks = (soaked("t1", SLOW_BASELINE, made(step_s)),)
    finals = rounds(SLOW_BASELINE, 3.0, 1.0, 1.3)
    assert len(findings(SLOW_BASELINE, finals, THROUGHPUT, soaks)) == said


def test_a_journal_of_before_with_one_final_of_the_best_can_be_read() -> None:
    trial = replace(SLOW_BASELINE[1].trial, name="t1_final", final=True)
    old = (Record(trial=trial, outcome=made(1.3), wall_s=1.0),)
    found = summary(SLOW_BASELINE, old)
    assert winner(found) == "t1"
    assert found.speed_up is not None


def test_the_summary_counts_the_rounds_that_were_made() -> None:
    even = (1.0, 1.01, 1.0)
    finals = Finals(searched(*even), THROUGHPUT, budget=FinalsBudget(time_s=40.0))
    run(finals, truth(*even), launch_s=1.0)
    assert summary(searched(*even), finals.records).rounds == finals.rounds


def test_where_all_that_were_launched_again_failed_the_search_says_what_is_next() -> None:
    finals = Finals(ALIKE, THROUGHPUT, wanted=1)
    run(finals, lambda trial: CRASH)
    read = replayed(ALIKE, finals.records, THROUGHPUT)
    orders = [safe_order(ALIKE, rounds, THROUGHPUT) for rounds in (finals, read)]
    names = [[record.trial.name for record in order] for order in orders]
    assert names == [["t2", "t3", "t4", "t5"]] * 2


def test_before_a_round_is_over_what_has_not_failed_is_as_the_search_says() -> None:
    finals = Finals(ALIKE, THROUGHPUT, wanted=1)
    (trial,) = finals.ask(1, 0.0)
    finals.tell(Record(trial=trial, outcome=CRASH, wall_s=1.0))
    order = safe_order(ALIKE, finals, THROUGHPUT)
    assert [record.trial.name for record in order] == ["t2", "t3", "t4", "t5", "t0"]
