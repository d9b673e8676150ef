"""Tensor, context and pipeline ranks by the real command: searched, refused, and lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "split.py")
TUNE = ("--autotuning=tune", "--effort=quick", "--soak-steps=0")
TENSOR = {"tensor": 2}


def configure(place: Place, parallelism: object, global_batch: int = 8) -> tuple[str, ...]:
    document = {
        "train_batch_size": global_batch,
        "train_micro_batch_size_per_gpu": [4],
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 0},
        "parallelism": parallelism,
    }
    return "--num_gpus=2", SCRIPT, "--config", str(place.write_config(document))


def test_listed_degrees_are_measured_and_the_best_is_a_configuration(place: Place) -> None:
    degrees = ("tensor", "context", "pipeline")
    flags = ("--tuner-type=gridsearch", "--good-enough=0%")
    code, output = place.here(*TUNE, *flags, *configure(place, {key: [1, 2] for key in degrees}))
    assert code == 0, output
    measured = {path.parent.name for path in place.results.glob("*/metrics.json")}
    shared = {f"z0_{degree}2_gas2_tmbspg4" for degree in ("tp", "cp", "pp")}
    assert shared | {"z0_gas1_tmbspg4"} <= measured, output
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert {best["parallelism"].get(degree, 1) for degree in degrees} <= {1, 2}


@pytest.mark.slow
def test_listed_schedules_are_measured_and_a_soak_has_the_phases_of_a_pipeline(
    place: Place,
) -> None:
    parallelism = {"pipeline": 2, "pipeline_schedule": ["1f1b", "gpipe"]}
    code, output = place.run("--autotuning=tune", *configure(place, parallelism))
    assert code == 0, output
    measured = {path.parent.name for path in place.results.glob("*/metrics.json")}
    assert len([name for name in measured if re.search(r"_pp2_.*_tmbspg\d+$", name)]) == 2
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best["parallelism"]["pipeline"] == 2
    (soak,) = place.results.glob("*_soak/result.json")
    assert list(dict(json.loads(soak.read_text())["phases"])) == ["pipeline", "update"]


def test_a_model_without_a_plan_is_searched_without_tensor_degrees(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "bare")
    code, output = place.here(*TUNE, "--dry-run", *configure(place, "all"))
    assert code == 0, output
    assert "by tensor_plan" in output


@pytest.mark.parametrize(
    ("global_batch", "parallelism", "says"),
    [
        (8, {"tensor": 3}, "world size 2 is not a multiple of tensor 3"),
        (4, {"pipeline": 2}, "needs at least 2 micro-batches under 1F1B; change it, or set"),
        (8, {"pipeline": 3}, "world size 2 is not a multiple of tensor 1 x pipeline 3"),
        (8, {"virtual_pipeline": 2}, "parallelism.virtual_pipeline is 2, but there is no"),
        (8, {"pipeline": 2, "pipeline_split": [2]}, "has 1 parts, but pipeline 2 = 2 stages"),
        (8, {"pipeline": 2, "pipeline_schedule": "gpip"}, "did you mean 'gpipe'?"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_refused_before_a_launch(
    place: Place, global_batch: int, parallelism: dict[str, Any], says: str
) -> None:
    code, output = place.refusal(*configure(place, parallelism, global_batch))
    assert code == 2, output
    assert says in output


@pytest.mark.parametrize(
    ("model", "fault", "says"),
    [
        ("odd", "", "parallelism.tensor is 2, but must divide"),
        ("split", "other_batch", "Ranks of one model copy were given different batches; load"),
    ],
)
def test_what_ranks_cannot_train_ends_a_plain_launch_with_one_line(
    place: Place, model: str, fault: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", model)
    code, output = place.here(*configure(place, TENSOR), fault=fault)
    assert (code, output.count("\n")) == (2, 1), output
    assert says in output


@pytest.mark.parametrize(
    ("model", "parallelism", "says"),
    [
        ("bare", TENSOR, "Split has no tensor plan"),
        ("split", {"pipeline": 2, "virtual_pipeline": 2}, "but the model has 2 repeated blocks"),
        pytest.param(
            *("short", {"context": 2}, "must divide the model's 5 pairs of tokens"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_model_that_cannot_be_shared_out_as_given_is_refused_before_a_trial(
    place: Place,
    model: str,
    parallelism: dict[str, int],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL", model)
    code, output = place.here(*TUNE, *configure(place, parallelism))
    assert code == 2, output
    assert says in output
    assert not list(place.results.glob("z*"))


@pytest.mark.parametrize(
    ("fault", "says"),
    [("exits", "rank 1 ended with exit code 3"), ("raises", "rank 1: ValueError: a mistake in")],
)
def test_a_rank_that_dies_in_a_collective_ends_the_trial_with_its_own_error(
    place: Place, fault: str, says: str
) -> None:
    code, output = place.here(*TUNE, *configure(place, TENSOR), fault=fault)
    assert code == 3, output
    (sentence,) = (line for line in output.splitlines() if "of your configuration" in line)
    assert says in sentence, output
    assert "by peer" not in sentence
    (log,) = place.results.glob("z*/stderr.log")
    died_s = float(log.read_text().partition("died ")[2].split()[0])
    assert (place.results / "journal.jsonl").stat().st_mtime - died_s < 5
