"""Context parallelism by the real command: a search over it, and what is wrong before a trial."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "contexts.py")
TUNE = ("--autotuning=tune", "--effort=quick", "--soak-steps=0")


def configure(place: Place, context: object) -> tuple[str, ...]:
    document = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": [4],
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 0},
        "parallelism": {"context": context},
    }
    return "--num_gpus=2", SCRIPT, "--config", str(place.write_config(document))


def tune(place: Place, context: object) -> tuple[int, str]:
    return place.run(*TUNE, *configure(place, context))


def test_listed_context_degrees_are_measured_and_the_best_is_a_configuration(place: Place) -> None:
    code, output = tune(place, [2, 1])
    assert code == 0, output
    measured = {path.parent.name for path in place.results.glob("*/metrics.json")}
    assert {"z0_cp2_gas2_tmbspg4", "z0_gas1_tmbspg4"} <= measured
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best["parallelism"]["context"] in (1, 2)


@pytest.mark.slow
def test_the_same_script_trains_to_the_same_loss_on_context_ranks(place: Place) -> None:
    losses = []
    for context in (1, 2):
        code, output = place.run(*configure(place, context))
        assert code == 0, output
        losses += re.findall(r"last loss ([\d.]+)", output)
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=2e-4)


@pytest.mark.slow
def test_samples_that_cannot_be_shared_out_are_refused_in_one_line(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENS", "10")
    code, output = place.run(*configure(place, 2))
    assert (code, output.count("\n")) == (2, 1), output
    assert "parallelism.context is 2, but samples of 10 tokens have no two equal" in output
    code, output = tune(place, 2)
    assert code == 2, output
    assert "parallelism.context is 2, but must divide the model's 5 pairs of tokens" in output
    assert not list(place.results.glob("z*"))
