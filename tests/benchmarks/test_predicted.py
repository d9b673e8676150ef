"""Predictions of ``plan`` beside measurements of the same configurations."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import pytest
import torch

from .conftest import import_benchmark

predicted = import_benchmark("predicted", "gpu")
planned = import_benchmark("planned", "gpu")

LARGE = planned.Question(model="gpt2-large", gpu="H100-SXM-80GB", global_batch=32)


def configuration(micro_batch: int, checkpointing: str = "none", **others: Any) -> Any:
    return planned.Configuration(micro_batch=micro_batch, checkpointing=checkpointing, **others)


def case(model: str = "tiny", global_batch: int = 2, **others: Any) -> Any:
    return predicted.Case(
        model=model, global_batch=global_batch, configuration=configuration(2, **others)
    )


def test_predictions_are_of_the_configurations_own_layout() -> None:
    layouts = planned._layouts(LARGE, "bf16", False)
    recomputed = [
        row.peak_bytes
        for row in layouts
        if row.layout.recompute.value == "full"
        and row.layout.micro_batch == 16
        and not row.layout.zero_stage
        and row.layout.offload.value == "none"
    ]
    assert len(recomputed) > 1
    assert planned.predict(LARGE, configuration(16, "full")).peak_bytes == min(recomputed)
    kept, recomputed = (
        planned.predict(LARGE, configuration(16, mode)) for mode in ("none", "full")
    )
    assert kept.fits
    assert kept.peak_bytes > recomputed.peak_bytes
    assert kept.step_s < recomputed.step_s
    assert planned.predict(LARGE, configuration(32)) == planned.Prediction(fits=False)


@pytest.mark.parametrize(
    ("model", "gpu"), [("gpt2-large", None), ("tiny", "H100-SXM-80GB"), ("gpt2-large", "Voodoo-2")]
)
def test_an_unknown_model_or_gpu_has_no_prediction(model: str, gpu: str | None) -> None:
    question = planned.Question(model=model, gpu=gpu, global_batch=32)
    assert planned.predict(question, configuration(4)) == planned.Prediction()


def test_cases_cover_recomputations_precisions_and_buildable_models() -> None:
    shapes = import_benchmark("train", "gpu").SHAPES
    assert all(shapes[model].tokens == tokens for model, tokens in planned.TOKENS.items())
    cases = predicted.cases("gpt2-large", 32)
    assert len(cases) >= 13
    assert {one.configuration.checkpointing for one in cases} == {"none", "full"}
    assert {one.configuration.precision for one in cases} == {"bf16", "fp32", "tf32"}
    assert all(one.global_batch % one.configuration.micro_batch == 0 for one in cases)


def test_rows_compare_predictions_with_what_the_driver_counts() -> None:
    gib = predicted.GIB
    measured = predicted.Measured(
        first_step_s=3.0,
        step_s=(2.0, 2.2, 2.1),
        allocated_bytes=8 * gib,
        reserved_bytes=9 * gib,
        context_bytes=gib,
    )
    prediction = planned.Prediction(fits=True, peak_bytes=11.0 * gib, step_s=1.05)
    row = predicted.row_of(case(), measured, prediction)
    assert (row["driver_error"], row["time_error"]) == ("+10.0%", "-50.0%")
    assert (row["step_s"], row["step_spread"]) == ("2.1000", "+10.0%")
    row = predicted.row_of(case(), "out of memory", planned.Prediction(fits=False))
    assert (row["outcome"], row["predicted_fits"]) == ("out of memory", "no")
    assert "driver_error" not in row
    assert table([case()], -1.0) == []


def table(asked: list[Any], seconds: float) -> list[dict[str, str]]:
    file = StringIO()
    predicted.write(asked, None, seconds, file)
    return list(csv.DictReader(StringIO(file.getvalue())))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is the rehearsal without a GPU")
def test_a_tiny_model_is_measured_without_a_gpu() -> None:
    (row,) = table([case(checkpointing="full", precision="fp32")], 60)
    assert row["outcome"] == "measured"
    assert float(row["step_s"]) > 0
    assert not row["reserved_gib"] + row["driver_error"]
