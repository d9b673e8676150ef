"""Tuning spaces and what a user may leave out, with the real command and real ranks."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from .conftest import SCRIPT, SMALL, Place

ONE_MICRO_BATCH = {**SMALL, "gradient_accumulation_steps": 1}


def records(place: Place) -> list[dict[str, Any]]:
    return [line for line in place.journal("candidate") if "wall_s" in line]


def test_a_tuning_space_is_searched_and_really_applied(place: Place) -> None:
    place.write_config(ONE_MICRO_BATCH)
    place.write_config("{zero_optimization: {stage: 0, bucket_cap_mb: [1, 9]}}", "my.hjson")
    code, output = place.tune_here("--num_gpus=2", "--tuning-space=my.hjson")
    assert code == 0, output
    measured = {line["name"] for line in records(place) if "measurement" in line}
    assert measured == {"z0_gas1_tmbspg1", "z0_bcm1_gas1_tmbspg1", "z0_bcm9_gas1_tmbspg1"}
    trial = json.loads((place.results / "z0_bcm9_gas1_tmbspg1" / "ds_config.json").read_text())
    assert trial["zero_optimization"] == {"stage": 0, "bucket_cap_mb": 9}


@pytest.mark.slow
def test_a_knob_that_the_model_cannot_take_fails_its_own_trial_alone(place: Place) -> None:
    place.write_config({**ONE_MICRO_BATCH, "zero_optimization": {"stage": 2}})
    place.write_config("{zero_optimization: {forward_prefetch: [9]}}", "my.hjson")
    code, output = place.tune("--num_gpus=2", "--tuning-space=my.hjson")
    assert code == 0, output
    (failed,) = (line["failure"] for line in records(place) if "failure" in line)
    assert failed["kind"] == "bad_config"
    assert "forward_prefetch is 9, but the model has only 2 units" in failed["detail"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_a_compile_mode_is_searched_and_its_steps_exclude_compiling(place: Place) -> None:
    place.write_config({**ONE_MICRO_BATCH, "compile_mode": ["off", "default"]})
    code, output = place.tune("--num_gpus=1")
    assert code == 0, output
    name = "z0_cmdefault_gas1_tmbspg1"
    assert name in {line["name"] for line in records(place) if "measurement" in line}
    trial = json.loads((place.results / name / "ds_config.json").read_text())
    assert trial["compile_mode"] == "default"
    lines = (place.results / name / "steps.jsonl").read_text().splitlines()
    first_s, *others_s = (json.loads(line)["wall_s"] for line in lines)
    assert max(others_s) < first_s


@pytest.mark.slow
def test_model_info_takes_the_place_of_the_profile_run(place: Place) -> None:
    place.write_config({**SMALL, "autotuning": {"model_info": {"num_params": 1000}}})
    code, output = place.tune("--tuner-num-trials=1")
    assert code == 0, output
    assert "the profile run is skipped" in output
    assert not (place.results / "profile_model_info").exists()


@pytest.mark.slow
def test_an_empty_configuration_can_be_tuned_from_the_command_line_alone(place: Place) -> None:
    script = place.folder / "own_optimizer.py"
    text = SCRIPT.read_text().replace(
        "loss_fn=loss_of)",
        "loss_fn=loss_of, optimizer=lambda ps: torch.optim.SGD(list(ps), lr=0.01))",
    )
    script.write_text(text)
    place.write_config({})
    code, output = place.tune("--tuner-num-trials=1", script=str(script))
    assert code == 0, output
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best["train_micro_batch_size_per_gpu"] == 1


def test_show_spaces_reads_the_script_as_a_tune_does(place: Place) -> None:
    (place.folder / "train_ds.py").write_text("import deepspeed\n")
    zero = {"stage": 1, "reduce_bucket_size": [5e7, 5e8], "allgather_bucket_size": 5e8}
    place.write_config({**SMALL, "zero_optimization": zero})
    words = ("train_ds.py", "--deepspeed", "config.json")
    code, output = place.here("show", "spaces", "--num_gpus=2", "--fast=false", *words)
    assert code == 0, output
    assert "zero_optimization.reduce_bucket_size     50000000, 500000000  configuration" in output
    assert "then 2 combinations of further knobs" in output
