"""The example whose every degree is searched: it is tuned, and the winner trains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .conftest import Place

EXAMPLE = Path(__file__).parents[2] / "examples" / "06_parallel_gpt"
QUICK = ("--max-parallel-trials=1", "--soak_steps=0", "--tuner-num-trials=6")


@pytest.fixture(autouse=True)
def example(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files; a tiny model on several threads takes long where other work has the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("train.py", "config.json"):
        shutil.copy(EXAMPLE / name, place.folder / name)


@pytest.mark.slow
def test_layouts_beyond_data_parallelism_are_searched_and_the_winner_trains(place: Place) -> None:
    words = ("--num_gpus=4", "train.py", "--config", "config.json", "--steps=5")
    code, output = place.run("--autotuning=run", *QUICK, *words)
    assert code == 0, output
    assert "done: 5 steps" in output
    spaces = {row["tuning_space"] for row in place.summary()["spaces"]}
    assert spaces & {"tensor", "pipeline", "3d", "context"}


@pytest.mark.slow
@pytest.mark.parametrize("degree", ["tensor", "context"])
def test_its_model_trains_alike_in_every_layout(place: Place, degree: str) -> None:
    document = json.loads((place.folder / "config.json").read_text())
    document |= {"train_batch_size": 4, "gradient_accumulation_steps": 2}
    losses = []
    for size in (1, 2):
        changed = {
            **document,
            "parallelism": {degree: size},
            "train_micro_batch_size_per_gpu": size,
        }
        (place.folder / "config.json").write_text(json.dumps(changed))
        words = ("--num_gpus=2", "train.py", "--config", "config.json", "--steps=3")
        code, output = place.run(*words)
        assert code == 0, output
        losses.append(float(output.rpartition("last loss ")[2].split()[0]))
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
