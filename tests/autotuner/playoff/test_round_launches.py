from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.playoff.contender import Contender
from autoconf_launch.autotuner.playoff.playoff import Lengths, alone, in_turn, lengths, says_over
from autoconf_launch.autotuner.space import Outcome, Record, Trial

from .test_playoff import CRASH, runs_of, steps_of

LENGTHS = Lengths(turns=4, turn_s=3.0, apart_s=6.0)
DUE = tuple(map(Contender, runs_of(1.0, 3.0, 1.0)))


def back(trial: Trial, outcome: Outcome | None = None) -> Record:
    return Record(trial=trial, outcome=outcome or steps_of(1.0), wall_s=1.0)


def one_after_another(number: int = 1) -> list[Trial]:
    return [alone(DUE[place:], number, LENGTHS)[0] for place in range(len(DUE))]


def test_a_launch_names_the_one_that_its_round_has_next() -> None:
    assert [trial.then for trial in one_after_another()] == ["t1_final", "t2_final", ""]


def test_side_by_side_each_names_who_gets_the_turn() -> None:
    trials = in_turn(DUE, 1, LENGTHS)
    assert [trial.then for trial in trials] == [t.turn and t.turn.next_name for t in trials]


def test_all_have_the_same_time_in_turn() -> None:
    turns = [trial.turn for trial in in_turn(DUE, 1, LENGTHS)]
    assert [(turn.steps, turn.length) for turn in turns if turn] == [(12, 3), (4, 1), (12, 3)]


def test_all_have_the_same_time_one_after_the_other() -> None:
    assert [trial.timed_steps for trial in one_after_another()] == [6, 2, 6]


def test_a_round_is_over_when_all_that_were_named_came_back() -> None:
    launches = [back(trial) for trial in one_after_another()]
    assert [says_over(launches[:count]) for count in (1, 2, 3)] == [False, False, True]


def test_a_turn_group_is_over_when_all_of_it_came_back() -> None:
    launches = [back(trial) for trial in in_turn(DUE, 1, LENGTHS)]
    assert [says_over(launches[:count]) for count in (1, 2, 3)] == [False, False, True]


def test_a_round_that_only_one_came_through_is_not_over() -> None:
    first, second = one_after_another()[1:]
    assert says_over([back(first), back(second, CRASH)]) is False


def test_a_failure_may_end_a_round_of_others() -> None:
    first, second, third = one_after_another()
    assert says_over([back(first), back(second), back(third, CRASH)])


def test_launches_of_before_do_not_say() -> None:
    old = [back(replace(trial, then=None)) for trial in one_after_another()]
    assert says_over(old) is None


def steps(records: tuple[Record, ...]) -> int:
    return alone([Contender(records[0])], 1, lengths(records, PRIOR, 1e6))[0].timed_steps


def test_a_launch_apart_has_more_steps_where_launching_is_dear() -> None:
    dear = tuple(replace(one, wall_s=20.0) for one in runs_of(0.03, 0.02))
    assert steps(dear) > steps(runs_of(3.0, 2.0))
