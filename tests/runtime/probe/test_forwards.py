"""Models that are called in unusual ways: each is followed, and none is disturbed."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

from .conftest import SCRIPTS

BATCH = 6


def test_keyword_only_forwards_are_counted(probed: Any) -> None:
    assert probed("forwards.py", "keyword_only").batches() == (BATCH, 1)


def test_blocks_are_described_one_by_one(probed: Any) -> None:
    blocks = probed("forwards.py", "keyword_only").model_info()["blocks"]
    shown = [(block["name"], block["count"], block["parameters"]) for block in blocks]
    assert shown == [("blocks", 3, 16 * 64 * 2 + 64 + 16), ("head", 1, 16 * 2 + 2)]


def test_without_recomputation_none_is_found(probed: Any) -> None:
    assert probed("forwards.py", "keyword_only").result().applied.recompute.value == "none"


@pytest.mark.parametrize("how", ["reentrant", "not_reentrant"])
def test_recomputation_inside_backward_is_found_and_not_counted(probed: Any, how: str) -> None:
    ended = probed("forwards.py", how)
    assert (ended.batches(), ended.result().applied.recompute.value) == ((BATCH, 1), "full")


@pytest.mark.parametrize("how", ["reentrant", "not_reentrant"])
def test_recomputed_blocks_are_described_as_without_recomputation(probed: Any, how: str) -> None:
    plain, again = (
        {block["name"]: block for block in probed("forwards.py", name).model_info()["blocks"]}
        for name in ("keyword_only", how)
    )
    kept = plain["blocks"]["activation_bytes"]
    assert again["blocks"]["activation_bytes"] == pytest.approx(kept, rel=0.3)


@pytest.mark.parametrize("how", ["reentrant", "not_reentrant"])
def test_recomputed_flops_are_no_model_flops(probed: Any, how: str) -> None:
    plain = probed("forwards.py", "keyword_only").result().flops_per_step
    assert probed("forwards.py", how).result().flops_per_step == plain


def test_attention_counts_on_cpu_too(probed: Any) -> None:
    products = BATCH * 2 * 16 * (16 + 2)
    attention = BATCH * 2 * 2 * 4 * 4 * 4
    flops = probed("forwards.py", "attends").result().flops_per_step
    assert flops == 3 * (products + attention)


def test_a_model_made_later_takes_over_when_it_is_larger(probed: Any) -> None:
    ended = probed("forwards.py", "another_model_first")
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), [1, 2, 3, 4, 5])


def test_a_new_model_of_the_same_size_goes_on(probed: Any) -> None:
    ended = probed("forwards.py", "one_model_per_fold")
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), [1, 2, 3, 4, 5])


def test_evaluation_loops_are_no_part_of_a_step(probed: Any) -> None:
    ended = probed("forwards.py", "evaluates", end_step=8)
    assert max(record.wall_s for record in ended.result().steps[2:]) < 0.1


def test_evaluation_batches_are_not_counted(probed: Any) -> None:
    ended = probed("forwards.py", "evaluates", end_step=8)
    assert {record.samples for record in ended.result().steps} == {BATCH}


def test_an_evaluation_with_gradients_is_not_counted(probed: Any) -> None:
    assert probed("forwards.py", "evaluates_first_with_gradients").batches() == (BATCH, 1)


@pytest.mark.parametrize("schedule", ["pipeline_stage", "one_forward_one_backward"])
def test_micro_batches_of_a_pipeline_are_accumulation(probed: Any, schedule: str) -> None:
    assert probed("forwards.py", schedule).batches() == (2, 4)


def test_copies_and_saved_models_are_not_followed(probed: Any) -> None:
    ended = probed("forwards.py", "copies")
    assert (ended.exit_codes, ended.batches()) == ((0,), (BATCH, 1)), ended.errors


def test_a_model_whose_forward_is_called_directly_still_steps(probed: Any) -> None:
    assert probed("forwards.py", "calls_forward").steps() == [1, 2, 3, 4, 5]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["compiled_model", "compiled_in_place", "compiled_function"])
def test_compiled_models_are_measured_without_compiling_anew(launched: Any, how: str) -> None:
    script = str(SCRIPTS / "forwards.py")
    ended = launched(sys.executable, script, how, more={"TORCH_LOGS": "recompiles"})
    assert (ended.steps(), "Recompiling" in ended.errors) == ([1, 2, 3, 4, 5], False), ended.errors


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["compiled_model", "compiled_in_place"])
def test_the_batch_of_a_compiled_model_is_found(launched: Any, how: str) -> None:
    script = str(SCRIPTS / "forwards.py")
    ended = launched(sys.executable, script, how, more={"TORCH_LOGS": "recompiles"})
    assert ended.batches() == (BATCH, 1)


@pytest.mark.parametrize("how", ["short_second_batch", "longer_later"])
def test_the_peak_of_memory_is_that_of_the_largest_step(probed: Any, how: str) -> None:
    assert probed("forwards.py", how).result().memory.peak_bytes > 3 * (1 << 25)


def test_one_of_several_processes_that_train_at_once_is_not_taken_for_the_whole(
    launched: Any, probed: Any
) -> None:
    script = str(SCRIPTS / "hogwild.py")
    (note,) = launched(sys.executable, script, "2", end_step=200).result().notes
    assert "describe one of them" in note
    assert probed("forwards.py", "keyword_only").result().notes == ()
