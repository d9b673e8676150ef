from __future__ import annotations

from autoconf_launch.autotuner.measurement.noise import PRIOR
from autoconf_launch.autotuner.playoff.arms import Arm
from autoconf_launch.autotuner.playoff.contenders import ALPHA, MOST_CONTENDERS, Places, planned
from autoconf_launch.autotuner.space.trial import Record

from .test_playoff import ALIKE, THROUGHPUT, searched


def places(records: tuple[Record, ...], wanted: int = 3, comparisons: int | None = None) -> Places:
    return Places(
        records,
        THROUGHPUT,
        wanted=wanted,
        noise=PRIOR,
        near_only=True,
        comparisons=comparisons,
    )


def test_nobody_comes_while_all_places_are_taken() -> None:
    held = places(ALIKE)
    arms = [Arm(record) for record in held.chosen]
    assert held.next(arms, arms[0]) is None


def test_a_place_goes_to_the_best_of_those_that_wait() -> None:
    held = places(ALIKE)
    arms = [Arm(record) for record in held.chosen]
    arms[1].is_out = True
    found = held.next(arms, arms[0])
    assert found is not None
    assert found.trial.name == "t4"


def test_the_place_of_the_baseline_is_nobody_elses() -> None:
    held = places(ALIKE)
    arms = [Arm(record) for record in held.chosen]
    arms[-1].is_out = True
    assert arms[-1].searched.trial.number == 0
    assert held.next(arms, arms[0]) is None


def test_who_came_waits_no_longer() -> None:
    held = places(ALIKE)
    assert held.take("t4") is not None
    assert held.take("t4") is None


def test_who_was_ruled_out_by_the_search_does_not_wait() -> None:
    assert places(searched(3.0, 1.0, 1.0, 1.0, 2.5)).take("t4") is None


def test_no_more_are_planned_for_than_may_ever_come() -> None:
    many = searched(3.0, *(1.0 + 0.001 * n for n in range(20)))
    assert planned(many, THROUGHPUT, PRIOR) == MOST_CONTENDERS
    assert places(many).level == ALPHA / MOST_CONTENDERS


def test_what_was_planned_before_is_kept() -> None:
    assert places(searched(3.0, 1.0), comparisons=4).level == ALPHA / 4
