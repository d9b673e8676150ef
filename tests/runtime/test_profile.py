"""Profile runs of real ranks: the model's description, measured, traced or both."""

import json
from typing import Any

import pytest

from autoconf_launch.core import MODEL_INFO_FILE, Grade, Mode, ModelSpec, decode

LIMITS = {"goes_well": None, "big": 20_000_000, "big_and_built": 20_000_000, "untraceable": None}


@pytest.fixture(scope="module")
def ended(launch: Any) -> dict[str, Any]:
    def run(name: str) -> Any:
        ranks = 2 if name == "goes_well" else 1
        limit = LIMITS[name]
        return launch(
            "scenario.py", name, ranks=ranks, mode=Mode.PROFILE, memory_limit_bytes=limit
        )

    return {name: run(name) for name in LIMITS}


def document(ended: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ended.folder / MODEL_INFO_FILE).read_text())
    return found


def spec(ended: Any) -> ModelSpec:
    return decode(ModelSpec, document(ended))


@pytest.mark.parametrize("name", LIMITS)
def test_every_rank_of_a_profile_ends_well(ended: dict[str, Any], name: str) -> None:
    assert set(ended[name].exit_codes) == {0}, ended[name].errors


def test_every_rank_of_a_profile_has_a_result_without_steps(ended: dict[str, Any]) -> None:
    both = ended["goes_well"]
    assert [both.result(rank).failure for rank in range(2)] == [None, None]
    assert "reached the end" not in both.outputs[0]


def test_a_real_run_gives_a_measured_model_with_each_weight_once(
    ended: dict[str, Any], tiny: Any
) -> None:
    found = spec(ended["goes_well"])
    weights = sum(parameter.numel() for parameter in tiny.Tiny().parameters())
    assert (found.grade, found.parameters) == (Grade.MEASURED, weights)
    assert document(ended["goes_well"])["num_params"] == weights  # DeepSpeed's name for it


def test_both_micro_batches_and_the_optimizer_step_are_timed(ended: dict[str, Any]) -> None:
    found = spec(ended["goes_well"])
    timings = found.timings
    assert [t.micro_batch for t in timings if t.forward_backward_s > 0] == [1, 2]
    assert all(t.fastest_s and t.fastest_s <= t.forward_backward_s for t in timings)
    assert (found.optimizer_step_s or 0) > 0


def test_the_trace_adds_peaks_of_each_phase(ended: dict[str, Any]) -> None:
    peaks = spec(ended["goes_well"]).traced_peaks
    assert {(p.phase, p.micro_batch) for p in peaks} == {
        (phase, size)
        for phase in ("forward", "backward", "accumulation", "optimizer")
        for size in (8, 16)
    }


@pytest.mark.parametrize("name", ["big", "big_and_built"])
def test_a_model_that_does_not_fit_is_still_traced(ended: dict[str, Any], name: str) -> None:
    found = spec(ended[name])
    assert (found.grade, len(found.traced_peaks), found.timings) == (Grade.TRACED, 8, ())


def test_a_model_that_cannot_be_traced_is_measured_and_says_why(ended: dict[str, Any]) -> None:
    found = spec(ended["untraceable"])
    assert (found.grade, found.traced_peaks) == (Grade.MEASURED, ())
    assert "could not be traced on fake tensors" in found.notes[0]
