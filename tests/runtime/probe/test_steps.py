"""Training steps, recognised only by the order of passes, batches and updates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.runtime.observe import Made, Meaning, StepCounter

INSIDE, BOUNDARY, RESTART = Meaning.INSIDE, Meaning.BOUNDARY, Meaning.RESTART


class Optimizer:
    """Stands for any; only its identity counts."""


def run(counter: StepCounter, micro_batches: int, samples: int = 4) -> None:
    for _ in range(micro_batches):
        counter.forward(samples)
        counter.backward()


@given(st.integers(1, 20), st.integers(1, 64))
def test_samples_are_micro_batch_times_accumulation(micro_batches: int, samples: int) -> None:
    counter, optimizer = StepCounter(), Optimizer()
    run(counter, micro_batches, samples)
    assert counter.step(optimizer, 10) is BOUNDARY
    assert counter.last_step().samples == micro_batches * samples


@given(st.lists(st.integers(1, 8), min_size=1, max_size=10))
def test_each_step_counts_what_went_into_it_alone(micro_batches: list[int]) -> None:
    counter, optimizer, counted = StepCounter(), Optimizer(), []
    for count in micro_batches:
        run(counter, count)
        counter.step(optimizer, 10)
        counted.append(counter.last_step().accumulation)
    assert counted == micro_batches


@given(st.integers(1, 6))
def test_a_step_without_a_backward_before_it_is_none(again: int) -> None:
    counter, optimizers = StepCounter(), [Optimizer() for _ in range(again + 1)]
    run(counter, 1)
    meanings = [counter.step(optimizer, 10) for optimizer in optimizers]
    assert meanings == [BOUNDARY] + [INSIDE] * again


def test_the_larger_of_two_that_take_turns_sets_the_pace() -> None:
    counter, small, large = StepCounter(), Optimizer(), Optimizer()
    seen = []
    for _ in range(2):
        for optimizer, size in ((small, 1), (large, 9)):
            run(counter, 1)
            seen.append(counter.step(optimizer, size))
    assert seen == [BOUNDARY, RESTART, INSIDE, BOUNDARY]


def test_an_optimizer_that_stands_still_is_given_up() -> None:
    counter, old, new = StepCounter(), Optimizer(), Optimizer()
    run(counter, 1)
    counter.step(old, 10)
    seen = []
    for _ in range(18):
        run(counter, 1)
        seen.append(counter.step(new, 10))
    assert (seen.count(RESTART), seen[-1]) == (1, BOUNDARY)


def test_a_skipped_update_takes_its_micro_batches_with_it() -> None:
    counter, optimizer = StepCounter(), Optimizer()
    run(counter, 2)
    counter.on_skip()
    run(counter, 1)
    counter.step(optimizer, 10)
    assert counter.last_step().accumulation == 1


def test_two_passes_over_one_loaded_batch_are_one_micro_batch() -> None:
    counter, optimizer = StepCounter(), Optimizer()
    counter.draw(4)
    run(counter, 2, samples=4)
    counter.step(optimizer, 10)
    assert counter.last_step().accumulation == 1


def test_a_loaded_batch_may_be_cut_into_micro_batches() -> None:
    counter, optimizer = StepCounter(), Optimizer()
    counter.draw(8)
    run(counter, 4, samples=2)
    counter.step(optimizer, 10)
    assert (counter.last_step().micro_batch, counter.last_step().accumulation) == (2, 4)


def test_without_any_backward_in_sight_a_forward_is_enough() -> None:
    counter, optimizer = StepCounter(), Optimizer()
    counter.forward(4)
    assert counter.step(optimizer, 10) is BOUNDARY


def test_the_loaders_batches_count_where_the_model_is_not_seen() -> None:
    counter, optimizer = StepCounter(), Optimizer()
    for _ in range(2):
        counter.draw(6)
        counter.backward()
    counter.step(optimizer, 10)
    assert (counter.last_step().micro_batch, counter.last_step().accumulation) == (6, 2)


def batch_of(counter: StepCounter, *, drawn: list[int], rows: int, forwards: int = 1) -> Made:
    """Samples of a step whose loaders drew these batches."""
    for size in drawn:
        counter.draw(size)
    run(counter, forwards, rows)
    counter.step(OPTIMIZER, 10)
    return counter.last_step()


OPTIMIZER = Optimizer()


@pytest.mark.parametrize(
    ("drawn", "rows", "forwards", "asked", "micro", "accumulation"),
    [
        ([8], 233, 1, None, 8, 1),  # nodes of graphs
        ([8], 16, 1, 8, 8, 1),  # two views in one pass
        ([4] * 8, 8, 8, 4, 4, 8),  # two views, with accumulation
        ([4] * 8, 8, 8, None, 4, 8),
        ([4] * 8, 16, 16, 4, 4, 8),  # four crops, and two passes over them
        ([4, 4], 8, 1, 4, 4, 1),  # two views, and the next batch drawn ahead
        ([4] * 8, 8, 8, 8, 8, 8),  # a loader of half of what was asked
        ([8, 8, 8], 128, 3, 8, 8, 3),  # frames, with accumulation
        ([1] * 4, 32, 4, None, 32, 4),  # a data set of whole batches, with accumulation
        ([32], 8, 4, 8, 8, 4),  # the script cuts what it drew
        ([64], 64, 2, None, 64, 1),  # two passes over one batch
        ([1], 32, 1, None, 32, 1),  # a data set of whole batches
        ([1], 16, 1, 1, 1, 1),  # one video of 16 frames
        ([16], 8, 1, 8, 8, 1),  # one process draws for two
        ([8, 56], 120, 1, 8, 8, 1),  # labelled and unlabelled
        ([8, 56], 120, 1, None, 120, 1),
        ([8], 0, 1, None, 8, 1),  # no tensor
    ],
)
def test_the_loader_counts_where_the_rows_of_the_model_are_not_samples(
    drawn: list[int], rows: int, forwards: int, asked: int | None, micro: int, accumulation: int
) -> None:
    found = batch_of(StepCounter(asked), drawn=drawn, rows=rows, forwards=forwards)
    assert (found.micro_batch, found.accumulation) == (micro, accumulation)


def test_graphs_of_another_size_in_each_step_are_counted_alike() -> None:
    counter = StepCounter(8)
    sizes = [batch_of(counter, drawn=[8], rows=rows).samples for rows in (233, 210, 251)]
    assert sizes == [8, 8, 8]
