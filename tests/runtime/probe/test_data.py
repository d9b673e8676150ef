"""Origin and number of samples."""

from typing import Any

import pytest

from autoconf_launch.launcher.dialects import DATALOADER_BATCH_VARIABLE
from autoconf_launch.runtime.locate.hook import BATCH_VARIABLE

BATCH = 3


@pytest.mark.parametrize(
    "how",
    [
        "batch_in_dimension_1",
        "no_loader",
        "batch_object",
        "images_of_unlike_sizes",
        "iterable_with_workers",
        "trains_in_workers",
        "fewer_samples_than_asked",
    ],
)
def test_the_samples_of_a_batch_are_found(probed: Any, how: str) -> None:
    ended = probed("data.py", how)
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), [1, 2, 3, 4, 5]), ended.errors


@pytest.mark.parametrize("form", [("object", "0"), ("tensor", "0"), ("object", "2")], ids="-".join)
def test_rows_are_not_taken_for_the_samples_that_a_loader_drew(
    probed: Any, form: tuple[str, str]
) -> None:
    ended = probed("data.py", "rows_of_samples", *form)
    assert ended.batches() == (BATCH, 1), ended.errors
    assert {record.samples for record in ended.result().steps} == {BATCH}


def test_another_batch_size_reaches_the_loaders_of_the_script(probed: Any) -> None:
    ended = probed("data.py", "iterable_with_workers", more={BATCH_VARIABLE: "5"})
    assert ended.batches() == (5, 1), ended.errors


def test_the_probe_and_the_dialect_mean_the_same_variable() -> None:
    assert BATCH_VARIABLE == DATALOADER_BATCH_VARIABLE


@pytest.mark.slow
def test_workers_that_are_spawned_claim_nothing(probed: Any) -> None:
    ended = probed("data.py", "trains_in_workers", "spawn")
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), [1, 2, 3, 4, 5]), ended.errors


@pytest.mark.parametrize(("batches", "measured"), [(4, [1, 2, 3, 4]), (2, [1]), (1, [1])])
def test_an_epoch_that_ends_early_gives_fewer_steps(
    probed: Any, batches: int, measured: list[int]
) -> None:
    ended = probed("data.py", "short_epoch", str(batches))
    shown = (ended.steps(), ended.failure(), ended.result().ended_early, ended.result().end_step)
    assert shown == (measured, None, True, measured[-1])
