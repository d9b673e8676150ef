"""What a trial's files ask of its ranks."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.stop_rule import FEWEST_TIMED
from autoconf_launch.autotuner.trial import Trial, Turn
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.tuning.trial_files import repeated_steps

FINAL = Trial(
    number=1,
    name="t1_final",
    candidate=Candidate(layout=Layout(micro_batch=1)),
    space="z0",
    final=True,
)


def test_a_final_that_follows_another_has_the_steps_that_it_was_given() -> None:
    assert repeated_steps(replace(FINAL, timed_steps=12)) == 12


def test_a_final_of_a_ring_has_those_of_its_turns() -> None:
    turn = Turn(next_name="t2_final", is_first=True, steps=8)
    assert repeated_steps(replace(FINAL, turn=turn, timed_steps=12)) == 8


def test_what_was_given_none_has_the_fewest() -> None:
    assert repeated_steps(replace(FINAL, timed_steps=0)) == FEWEST_TIMED
