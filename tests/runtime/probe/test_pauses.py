"""Work of a script between its steps: seen, not timed, and named in failures."""

import json
from typing import Any

import pytest

from autoconf_launch.core import Aside, Asides, FailureKind, RankResult, decode

SOAK = {"soak": True, "end_step": 8}
PAUSE_S = 0.5


def asides_of(ended: Any, rank: int = 0) -> Asides:
    asides = ended.result(rank).asides
    assert isinstance(asides, Asides)
    return asides


def interruption(ended: Any) -> RankResult:
    return decode(RankResult, json.loads(ended.signs()["unfinished_rank0"]))


def test_an_evaluation_is_seen_with_its_batches(probed: Any) -> None:
    asides = asides_of(probed("pauses.py", "evaluates", **SOAK))
    assert (asides.evaluations, asides.evaluation_batches, asides.checkpoints) == (1, 4, 0)


def test_a_checkpoint_is_seen_with_its_size(probed: Any) -> None:
    asides = asides_of(probed("pauses.py", "saves", **SOAK))
    assert (asides.checkpoints, asides.evaluations) == (1, 0)
    assert asides.saved_bytes > 4 * (16 * 32 + 32 * 2)


def test_what_is_saved_to_memory_is_no_checkpoint(probed: Any) -> None:
    assert asides_of(probed("pauses.py", "saves_to_memory", **SOAK)).checkpoints == 0


@pytest.mark.parametrize("how", ["evaluates", "saves"])
def test_the_time_of_a_pause_is_in_no_step(probed: Any, how: str) -> None:
    result = probed("pauses.py", how, **SOAK).result()
    assert result.asides.before_steps == (4,)
    assert max(step.wall_s for step in result.steps[2:]) < PAUSE_S


def test_a_script_that_trains_in_a_wrapper_and_evaluates_inside_is_seen(probed: Any) -> None:
    ended = probed("pauses.py", "inside_ddp", ranks=2, **SOAK)
    seen = [asides_of(ended, rank).evaluation_batches for rank in (0, 1)]
    assert seen == [4, 0], ended.errors


def test_memory_of_an_evaluation_counts_as_the_soaks_peak(probed: Any) -> None:
    without, collecting = (
        probed("pauses.py", how, **SOAK).result().memory.peak_bytes
        for how in ("evaluates", "collects")
    )
    assert collecting - without > 4 * (1 << 25) * 0.9


def test_memory_that_an_evaluation_collects_is_refused_with_the_place(probed: Any) -> None:
    failure = probed("pauses.py", "collects_too_much", **SOAK).failure()
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.detail.endswith("in or after the evaluation that followed optimizer step 3)")


def test_a_step_after_an_evaluation_that_fails_is_not_blamed_on_it(probed: Any) -> None:
    failure = probed("pauses.py", "trains_on_too_much", **SOAK).failure()
    assert (failure.kind, "evaluation" in failure.detail) == (FailureKind.OUT_OF_MEMORY, False)


def test_a_checkpoint_that_cannot_be_written_is_named(probed: Any) -> None:
    ended = probed("pauses.py", "fails_to_save", **SOAK)
    assert "in the checkpoint that followed optimizer step 3" in ended.failure().detail
    assert asides_of(ended).under_way is Aside.CHECKPOINT


def test_a_rank_that_dies_in_an_evaluation_has_said_that_it_was_in_one(probed: Any) -> None:
    ended = probed("pauses.py", "dies", **SOAK)
    found = interruption(ended)
    assert not ended.has_reported()
    assert (found.asides and found.asides.under_way, len(found.steps)) == (Aside.EVALUATION, 3)


def test_a_trial_that_is_no_soak_writes_nothing_before_its_end(probed: Any) -> None:
    assert "unfinished_rank0" not in probed("pauses.py", "evaluates", end_step=8).signs()
