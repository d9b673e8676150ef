"""Tensor parallelism by the real command: a search over it, and what is wrong before a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "split.py")
TUNE = ("--autotuning=tune", "--effort=quick", "--soak-steps=0")


def configure(place: Place, tensor: object, **more: Any) -> tuple[str, ...]:
    document = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": [4],
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 0},
        "parallelism": tensor if tensor == "all" else {"tensor": tensor, **more},
    }
    return "--num_gpus=2", SCRIPT, "--config", str(place.write_config(document))


def tune(place: Place, tensor: object) -> tuple[int, str]:
    return place.run(*TUNE, *configure(place, tensor))


def test_listed_tensor_degrees_are_measured_and_the_best_is_a_configuration(place: Place) -> None:
    code, output = tune(place, [2, 1])
    assert code == 0, output
    measured = {path.parent.name for path in place.results.glob("*/metrics.json")}
    assert {"z0_tp2_gas2_tmbspg4", "z0_gas1_tmbspg4"} <= measured
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best["parallelism"]["tensor"] in (1, 2)


def test_the_same_script_trains_on_tensor_ranks(place: Place) -> None:
    code, output = place.run(*configure(place, 2, sequence_parallel=True))
    assert code == 0, output
    assert "last loss" in output


def test_degrees_that_do_not_divide_the_ranks_are_refused_before_a_launch(place: Place) -> None:
    code, output = place.refusal(*configure(place, 3))
    assert code == 2
    assert "world size 2 is not a multiple of tensor 3" in output
    assert "one of 1, 2." in output


def test_a_model_without_a_plan_is_searched_without_tensor_degrees(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "bare")
    code, output = tune(place, "all")
    assert code == 0, output
    assert "by tensor_plan" in output


@pytest.mark.parametrize(
    ("model", "says"),
    [("odd", "parallelism.tensor is 2, but must divide"), ("bare", "Split has no tensor plan")],
)
def test_a_model_that_cannot_be_split_is_refused_in_one_line(
    place: Place, model: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", model)
    if model == "odd":
        code, output = place.run(*configure(place, 2))
        assert (code, output.count("\n")) == (2, 1), output
        assert says in output
    code, output = tune(place, 2)
    assert code == 2, output
    assert says in output
    assert not list(place.results.glob("z*"))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("other_batch", "Ranks of one model copy were given different batches; load"),
        ("no_checkpoint", "no/such/folder holds no checkpoint of engine.save."),
    ],
)
def test_what_a_script_does_wrongly_in_its_ranks_is_one_line(
    place: Place, fault: str, says: str
) -> None:
    code, output = place.run(*configure(place, 2), fault=fault)
    assert (code, output.count("\n")) == (2, 1), output
    assert says in output


@pytest.mark.parametrize(
    ("fault", "says"),
    [("exits", "rank 1 ended with exit code 3"), ("raises", "rank 1: ValueError: a mistake in")],
)
def test_a_rank_that_dies_in_a_collective_ends_the_trial_with_its_own_error(
    place: Place, fault: str, says: str
) -> None:
    code, output = place.run(*TUNE, *configure(place, 2), fault=fault)
    assert code == 3, output
    (sentence,) = (line for line in output.splitlines() if "of your configuration" in line)
    assert says in sentence, output
    assert "by peer" not in sentence
    (log,) = place.results.glob("z*/stderr.log")
    died_s = float(log.read_text().partition("died ")[2].split()[0])
    assert (place.results / "journal.jsonl").stat().st_mtime - died_s < 5
