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


@pytest.mark.parametrize(("sequence", "written"), [(512, 128), (64, 64)])
def test_t5_s_decoder_writes_what_nemo_s_does(sequence: int, written: int) -> None:
    t5 = model("t5", 2.8, 29_000, 512)
    assert usual_training(t5, sequence, machine(A100)).workload.decoder_sequence_length == written


def test_a_length_that_is_given_holds() -> None:
    t5 = model("t5", 2.8, 29_000, 512)
    assert (
        usual_training(t5, 512, machine(A100), written=256).workload.decoder_sequence_length == 256
    )


def test_other_models_have_one_length() -> None:
    gpt = model("gpt3", 5.0, 51_200, 2048)
    for written in (None, 512):
        training = usual_training(gpt, 2048, machine(A100), written=written)
        assert (training.workload.decoder_sequence_length, training.workload.logit_tokens) == (
            None,
            2048,
        )
