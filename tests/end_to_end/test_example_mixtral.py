"""The example with experts: it trains on expert ranks, is tuned, and writes what others load."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import Place

EXAMPLE = Path(__file__).parents[2] / "examples" / "07_mixtral"


@pytest.fixture(autouse=True)
def example(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copy(EXAMPLE / "train.py", place.folder)
    found: dict[str, object] = json.loads((EXAMPLE / "config.json").read_text())
    return found


def last_loss(output: str) -> float:
    return float(re.findall(r"loss ([\d.]+)", output)[-1])


@pytest.mark.slow
def test_expert_ranks_train_what_transformers_loads(
    place: Place, example: dict[str, object]
) -> None:
    library = pytest.importorskip("transformers")
    losses = []
    for degree in (1, 2):
        decided = {"zero_optimization": {"stage": 0}, "parallelism": {"expert": degree}}
        path = place.write_config({**example, **decided})
        words = ("train.py", "--config", str(path), "--steps", "10", "--save", "saved")
        code, output = place.run("--num_gpus=2", *words)
        assert code == 0, output
        losses.append(last_loss(output))
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    model = library.AutoModelForCausalLM.from_pretrained(place.folder / "saved")
    assert model.config.num_local_experts == 16


@pytest.mark.slow
def test_a_search_measures_expert_ranks_and_trains_with_the_winner(
    place: Place, example: dict[str, object]
) -> None:
    path = place.write_config({**example, "zero_optimization": {"stage": 0}})
    quick = ("--num_gpus=2", "--effort=quick", "--soak-steps=0", "--no-history")
    process = place.start("--autotuning=run", *quick, "train.py", "--config", str(path))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    measured = {path.parent.name for path in place.results.glob("z0*/metrics.json")}
    assert any("_ep2" in name for name in measured)
    assert any("_ep" not in name for name in measured)
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    assert best.get("parallelism", {}).get("expert", 1) in (1, 2)
    assert last_loss(output) < 2.5
