"""NVIDIA's formula for sizes and days, as rounded in its own tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import (
    Budget,
    Family,
    SampleShape,
    exact_training_days,
    step_flops,
    training_days,
)
from autoconf_launch.autotuner.sizing.model_size import model_size_b

from .expected import rows

_NEMO2 = rows("expected_nemo2.csv")


def budget(row: dict[str, str], gpus: str) -> Budget:
    return Budget(
        gpus=int(row[gpus]),
        tflops_per_gpu=float(row["tflops_per_gpu"]),
        tokens_b=float(row["num_tokens_in_b"]),
    )


@pytest.mark.parametrize("row", rows("expected_model_size_recommendation.csv"), ids=str)
def test_sizes_are_those_of_nemo1(row: dict[str, str]) -> None:
    size = model_size_b(row["family"], budget(row, "gpu_count"), float(row["max_training_days"]))
    assert size == float(row["exact_value"])


@pytest.mark.parametrize("row", rows("expected_training_time.csv"), ids=str)
def test_days_are_those_of_nemo1(row: dict[str, str]) -> None:
    size_b = float(row["model_size_in_b"])
    days = training_days(row["family"], size_b, budget(row, "gpu_count"))
    assert days == float(row["exact_value"])


@pytest.mark.parametrize("row", [row for row in _NEMO2 if row["asked"] == "size"], ids=str)
def test_sizes_are_those_of_nemo2(row: dict[str, str]) -> None:
    size = model_size_b(row["family"], budget(row, "gpus"), float(row["days"]))
    assert size == float(row["model_size_in_b"])


@pytest.mark.parametrize("row", [row for row in _NEMO2 if row["asked"] == "days"], ids=str)
def test_days_are_those_of_nemo2(row: dict[str, str]) -> None:
    days = training_days(row["family"], float(row["model_size_in_b"]), budget(row, "gpus"))
    assert days == float(row["days"])


@given(
    size_b=st.floats(0.01, 1000),
    gpus=st.integers(1, 4096),
    tokens_b=st.floats(1, 10_000),
)
def test_a_size_fits_into_its_own_days(size_b: float, gpus: int, tokens_b: float) -> None:
    one = Budget(gpus=gpus, tflops_per_gpu=140, tokens_b=tokens_b)
    days = exact_training_days("gpt3", size_b, one)
    assert model_size_b("gpt3", one, days) == pytest.approx(size_b, abs=0.0051)


@pytest.mark.parametrize("row", rows("expected_tflops.csv"), ids=str)
def test_teraflops_are_those_of_nemo(row: dict[str, str]) -> None:
    family = Family(row["family"])
    layers = int(row["layers(enc+dec)"])
    shape = SampleShape(
        family=family,
        layers=layers // 2 if family.is_encoder_decoder else layers,
        hidden=int(row["hidden"]),
        ffn=int(row["ffn"] or 0),
        vocabulary=int(row["vocab"]),
        sequence=int(row["enc_seq_len"]),
        decoder_sequence=int(row["dec_seq_len"] or 0),
    )
    flops = step_flops(shape, int(row["gbs"]))
    aggregate = flops / float(row["time_per_step_s"]) / 1e12
    gpus = int(row["nodes"]) * int(row["gpus_per_node"])
    assert round(aggregate, 2) == float(row["model_tflops_aggregate"])
    assert round(aggregate / gpus, 2) == float(row["model_tflops_per_gpu"])
