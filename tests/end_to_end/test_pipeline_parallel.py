"""Pipelines by the real command: a search over them, and what is wrong before a trial."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "split.py")


def configure(place: Place, accumulation: int = 2, **parallelism: Any) -> tuple[str, ...]:
    document = {
        "train_batch_size": 2 * accumulation,
        "train_micro_batch_size_per_gpu": [2],
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 0},
        "parallelism": parallelism,
    }
    return "--num_gpus=2", SCRIPT, "--config", str(place.write_config(document))


@pytest.mark.slow
def test_listed_schedules_are_measured_and_a_soak_has_the_phases_of_a_pipeline(
    place: Place,
) -> None:
    code, output = place.run(
        "--autotuning=tune", *configure(place, pipeline=2, pipeline_schedule=["1f1b", "gpipe"])
    )
    assert code == 0, output
    measured = {path.parent.name for path in place.results.glob("*/metrics.json")}
    assert len([name for name in measured if re.search(r"_pp2_.*_tmbspg\d+$", name)]) == 2
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best["parallelism"]["pipeline"] == 2
    (soak,) = place.results.glob("*_soak/result.json")
    assert list(dict(json.loads(soak.read_text())["phases"])) == ["pipeline", "update"]


@pytest.mark.parametrize(
    ("accumulation", "parallelism", "says"),
    [
        (1, {"pipeline": 2}, "needs at least 2 micro-batches under 1F1B; change it, or set"),
        (2, {"pipeline": 3}, "world size 2 is not a multiple of tensor 1 x pipeline 3"),
        (2, {"virtual_pipeline": 2}, "parallelism.virtual_pipeline is 2, but there is no"),
        (2, {"pipeline": 2, "pipeline_split": [2]}, "has 1 parts, but pipeline 2 = 2 stages"),
        (2, {"pipeline": 2, "pipeline_schedule": "gpip"}, "did you mean 'gpipe'?"),
    ],
)
def test_what_is_wrong_with_a_pipeline_is_refused_before_a_launch(
    place: Place, accumulation: int, parallelism: dict[str, Any], says: str
) -> None:
    code, output = place.refusal(*configure(place, accumulation, **parallelism))
    assert code == 2, output
    assert says in output


@pytest.mark.parametrize(
    ("parallelism", "says"),
    [
        ({"pipeline": 2, "virtual_pipeline": 2}, "4 stages, but the model has 2 repeated blocks"),
        pytest.param(
            {"pipeline": 2, "pipeline_split": [2, 1]},
            "whose sum is 3, but the model has 2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_stages_beyond_the_blocks_are_refused_in_one_line(
    place: Place, parallelism: dict[str, Any], says: str
) -> None:
    code, output = place.run(*configure(place, **parallelism))
    assert (code, output.count("\n")) == (2, 1), output
    assert says in output
    code, output = place.run("--autotuning=tune", *configure(place, **parallelism))
    assert code == 2, output
    assert says in output
    assert not list(place.results.glob("z*"))
