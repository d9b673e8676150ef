"""Models that are called in unusual ways: each is followed, and none is disturbed."""

import shutil
import sys
from typing import Any

import pytest

from .conftest import SCRIPTS

BATCH = 6


def test_keyword_only_forwards_are_counted_and_their_blocks_described(probed: Any) -> None:
    ended = probed("forwards.py", "keyword_only")
    shown = [(b["name"], b["count"], b["parameters"]) for b in ended.model_info()["blocks"]]
    assert shown == [("blocks", 3, 16 * 64 * 2 + 64 + 16), ("head", 1, 16 * 2 + 2)]
    assert (ended.batches(), ended.result().applied.recompute.value) == ((BATCH, 1), "none")


@pytest.mark.parametrize("how", ["reentrant", "not_reentrant"])
def test_recomputation_inside_backward_is_found_and_not_counted(probed: Any, how: str) -> None:
    plain, again = (probed("forwards.py", name) for name in ("keyword_only", how))
    assert (again.batches(), again.result().applied.recompute.value) == ((BATCH, 1), "full")
    assert again.result().flops_per_step == plain.result().flops_per_step
    kept, found = (
        next(b["activation_bytes"] for b in ended.model_info()["blocks"] if b["name"] == "blocks")
        for ended in (plain, again)
    )
    assert found == pytest.approx(kept, rel=0.3)


def test_attention_counts_on_cpu_too(probed: Any) -> None:
    products = BATCH * 2 * 16 * (16 + 2)
    attention = BATCH * 2 * 2 * 4 * 4 * 4
    flops = probed("forwards.py", "attends").result().flops_per_step
    assert flops == 3 * (products + attention)


@pytest.mark.parametrize("how", ["another_model_first", "one_model_per_fold"])
def test_a_model_made_later_takes_over_if_it_is_as_large(probed: Any, how: str) -> None:
    ended = probed("forwards.py", how)
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), [1, 2, 3, 4, 5])


def test_evaluation_loops_and_their_batches_are_no_part_of_a_step(probed: Any) -> None:
    steps = probed("forwards.py", "evaluates", end_step=8).result().steps
    assert max(record.wall_s for record in steps[2:]) < 0.1
    assert {record.samples for record in steps} == {BATCH}


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
    probed: Any,
) -> None:
    (note,) = probed("hogwild.py", "2", end_step=200).result().notes
    assert "describe one of them" in note
    assert probed("forwards.py", "keyword_only").result().notes == ()
