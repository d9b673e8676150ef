"""Loaders that end with a soak, and draws that take the longest batch; no torch loader."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from autoconf_launch.runtime.soak import TrainingData

STEPS = 6


class Loader:
    """An iterator that gives batches of these lengths."""

    def __init__(self, *lengths: int, sampler: object = None) -> None:
        self._index_sampler = sampler or self
        self._batches = (torch.ones(length) for length in lengths)

    def __next__(self) -> Tensor:
        return next(self._batches)


class Script:
    """A training that tells of itself."""

    def __init__(self, **named: Any) -> None:
        self.data = TrainingData(STEPS, **named)

    def draw(self, loader: Loader) -> int:
        batch: Tensor = self.data.draw(loader, type(loader).__next__)
        return len(batch)

    def steps(self, loader: Loader, count: int) -> list[int]:
        """Lengths of the batches that so many steps were made from."""
        return list(self._steps(loader, count))

    def evaluate(self, loader: Loader, batches: int) -> None:
        for _ in range(batches):
            self.draw(loader)
            self.data.evaluates()

    def ends(self, loader: Loader) -> bool:
        try:
            self.draw(loader)
        except StopIteration:
            return True
        return False

    def _steps(self, loader: Loader, count: int) -> Iterator[int]:
        for _ in range(count):
            yield self.draw(loader)
            self.data.trains()
            self.data.on_step()


def end(*lengths: int) -> tuple[Script, Loader]:
    """A script whose steps were made, and its loader."""
    script, loader = Script(), Loader(*(lengths or (1,) * 20))
    script.steps(loader, STEPS)
    script.data.end()
    return script, loader


def test_the_trainings_loader_ends_and_another_does_not() -> None:
    script, loader = end()
    assert (script.ends(Loader(1)), script.ends(loader)) == (False, True)


def test_it_ends_once() -> None:
    script, loader = end()
    assert [script.ends(loader) for _ in range(2)] == [True, False]


def test_an_evaluations_loader_that_was_drawn_from_in_the_last_step_does_not_end() -> None:
    script, loader, other = Script(), Loader(*(1,) * 20), Loader(*(1,) * 20)
    script.steps(loader, STEPS - 1)
    script.evaluate(other, 2)
    script.steps(loader, 1)
    script.data.end()
    assert (script.ends(other), script.ends(loader)) == (False, True)


def test_a_step_on_what_is_drawn_after_the_end_is_of_a_new_epoch() -> None:
    script, loader = end()
    assert script.ends(loader)
    script.draw(Loader(1))
    script.data.trains()
    assert script.data.is_new_epoch


def test_a_step_after_an_evaluation_is_of_what_was_drawn_before() -> None:
    script, loader = end()
    assert script.ends(loader)
    script.evaluate(Loader(1, 1), 2)
    script.data.trains()
    assert not script.data.is_new_epoch


def test_two_steps_may_be_left_over() -> None:
    script, _ = end()
    found = []
    for _ in range(3):
        script.data.trains()
        found.append(script.data.is_left_over())
    assert found == [True, True, False]


def test_several_optimizers_of_a_step_are_one_step_left_over() -> None:
    script, _ = end()
    script.data.trains()
    assert all(script.data.is_left_over() for _ in range(5))


def test_where_nothing_was_drawn_nothing_can_be_ended() -> None:
    script = Script()
    script.data.trains()
    script.data.on_step()
    assert not script.data.can_end


def test_a_loader_that_ended_by_itself_before_the_last_step_counts_as_ended() -> None:
    script, loader = Script(), Loader(*(1,) * STEPS)
    script.steps(loader, STEPS - 1)
    script.draw(loader)
    script.data.trains()
    script.data.on_step()
    assert script.ends(loader)  # a batch was drawn ahead
    script.data.trains()
    script.data.on_step()
    assert script.data.can_end
    script.data.end()
    script.draw(Loader(1))
    script.data.trains()
    assert script.data.is_new_epoch


def test_the_last_two_steps_take_the_longest_batch() -> None:
    script = Script()
    assert script.steps(Loader(1, 9, 2, 3, 4, 5), STEPS) == [1, 9, 2, 3, 9, 9]
    assert script.data.gave_longest


def test_a_longer_batch_is_taken_as_it_comes() -> None:
    assert Script().steps(Loader(1, 9, 2, 3, 4, 20), STEPS)[-2:] == [9, 20]


def test_the_longest_of_an_earlier_epoch_counts() -> None:
    script, sampler = Script(), object()
    script.steps(Loader(1, 9, sampler=sampler), 2)
    assert script.steps(Loader(1, 2, 3, 4, sampler=sampler), 4) == [1, 2, 9, 9]


def test_each_loader_has_its_own_longest() -> None:
    script = Script()
    script.steps(Loader(7, 7), 2)
    assert script.steps(Loader(1, 2, 1, 1), 4) == [1, 2, 2, 2]


def test_who_gives_the_longest_itself_repeats_nothing_here() -> None:
    script = Script(repeats=False)
    assert script.steps(Loader(9, 1, 1, 1, 1, 1), STEPS)[-1] == 1
    assert not script.data.gave_longest


@pytest.mark.parametrize(("ahead", "known"), [(1, True), (2, False)])
def test_batches_drawn_further_ahead_than_a_step_are_not_claimed(ahead: int, known: bool) -> None:
    script, loader = Script(), Loader(*range(1, 20))
    for _ in range(ahead):
        script.draw(loader)
    script.steps(loader, STEPS)
    assert script.data.gave_longest is known


def test_steps_that_count_anew_forget_what_was_drawn() -> None:
    script, loader = Script(), Loader(*(1,) * 20)
    script.steps(loader, STEPS)
    script.data.restart()
    assert not script.data.can_end
