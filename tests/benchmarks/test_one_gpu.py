"""What the GPU benchmark makes of its trials; running it needs a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space.trial import FailedTrial, Measurement, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, Recompute

from .conftest import import_benchmark

one_gpu = import_benchmark("one_gpu", "gpu")


def row(micro_batch: int, step_s: float | None, *, compiled: int = 0, number: int = 1) -> Any:
    layout = Layout(micro_batch=micro_batch, accumulation=32 // micro_batch)
    extras = (("--checkpointing", "none"), ("--compile", compiled), ("--precision", "bf16"))
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    record = Record(
        trial=Trial(
            number=number,
            name=f"mbs{micro_batch}_{compiled}",
            candidate=Candidate(layout=layout, extras=extras),
            space="z0",
        ),
        outcome=Measurement(step_s=(step_s,), samples_per_step=32, world_size=1)
        if step_s
        else full,
        wall_s=10.0,
    )
    return one_gpu.Row(record=record)


ROWS = (row(1, 4.0, number=0), row(4, 2.0), row(2, 3.0), row(8, None), row(16, 1.0))


def test_hand_tuning_raises_the_micro_batch_until_memory_ends() -> None:
    assert one_gpu.by_hand(ROWS) == {
        "choice": "mbs4_0",
        "step_s": 2.0,
        "trials": 4,
        "wall_s": 40.0,
    }


def test_hand_tuning_leaves_the_other_knobs_as_they_were() -> None:
    assert one_gpu.by_hand((*ROWS, row(1, 0.5, compiled=1)))["choice"] == "mbs4_0"


def ask(gpu: str | None) -> Any:
    return one_gpu.Asked(
        model="gpt2-large", gpu=gpu, global_batch=32, minutes=1, folder=Path("unused")
    )


def test_a_known_gpu_has_predictions_beside_what_was_measured() -> None:
    (found,) = one_gpu.rows_of((row(4, 2.0).record,), ask("H100-SXM-80GB"))
    assert found.predicted_step_s > 0
    assert found.predicted_peak_bytes > 16 * 700e6  # weights, gradients and two moments


def test_errors_are_of_what_was_predicted_alone() -> None:
    predicted = one_gpu.Row(record=row(4, 2.0).record, predicted_step_s=3.0)
    assert one_gpu.errors((*ROWS, predicted))["step_percent"] == pytest.approx(50.0)


def test_without_a_name_of_the_gpu_nothing_is_predicted() -> None:
    (found,) = one_gpu.rows_of((row(4, 2.0).record,), ask(None))
    assert found.predicted_step_s is None


def test_the_same_recomputation_is_asked_for() -> None:
    layout = Layout(micro_batch=4, recompute=Recompute.FULL)
    assert one_gpu._is_same(layout, 4, "full")
    assert not one_gpu._is_same(layout, 4, "none")
