from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import Family, ModelQuestion, choose_model
from autoconf_launch.core import Architecture
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.tuning_spaces import generation_of, machine, tables

A100 = "A100-SXM-80GB"


def model(name: str, size_b: float, vocabulary: int, sequence: int) -> Architecture:
    family = Family(name)
    asked = ModelQuestion(
        family=family,
        size_b=size_b,
        vocabulary=vocabulary,
        sequence=sequence,
        gpu_memory_gb=80,
        batch=None,
    )
    return choose_model(tables(generation_of(family)), asked).architecture


T5, GPT = model("t5", 2.8, 29_000, 512), model("gpt3", 5.0, 51_200, 2048)


@pytest.mark.parametrize(
    ("one", "sequence", "written", "decoder", "logits"),
    [
        (T5, 512, None, 128, 128),
        (T5, 64, None, 64, 64),
        (T5, 512, 256, 256, 256),
        (GPT, 2048, None, None, 2048),
        (GPT, 2048, 512, None, 2048),
    ],
)
def test_a_decoder_writes_what_is_given_or_what_nemo_s_does(
    one: Architecture, sequence: int, written: int | None, decoder: int | None, logits: int
) -> None:
    found = usual_training(one, sequence, machine(A100), written=written).workload
    assert (found.decoder_sequence_length, found.logit_tokens) == (decoder, logits)
