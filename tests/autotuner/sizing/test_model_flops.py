"""Operations as NVIDIA's tool counts them, against its own results."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import Family, SampleShape, step_flops

from .expected import rows


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
