"""The winner's soak comes to the evaluation and the checkpoint after an epoch, in every script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SMALL, Place

SCRIPTS = Path(__file__).parent / "scripts"
QUICK = ("--num_gpus=1", "--max-parallel-trials=1", "--soak_steps=12")
CONSENT = "--allow-global-batch-change"
HUNGRY = ("--eval-megabytes", "10")
LIMIT = "--memory-limit=400MB"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model on several threads takes long where other work has the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def own(place: Place, *flags: str, micro_batches: Any, words: tuple[str, ...] = ()) -> str:
    """What a tune of a script on our engine prints."""
    sizes = {"train_micro_batch_size_per_gpu": micro_batches, "gradient_accumulation_steps": 1}
    config = str(place.write_config({**SMALL, **sizes}))
    script = place.folder / "own.py" if words else SCRIPTS / "own_epochs.py"
    argv = (*QUICK, CONSENT, *flags, str(script), "--config", config, *words)
    code, output = place.run("--autotuning=tune", *argv)
    assert code == 0, output
    return output


def assert_small_is_taken(place: Place, output: str) -> None:
    assert "z0_gas1_tmbspg64 failed its verification run (out_of_memory: " in output
    assert "the evaluation that followed optimizer step 12" in output
    summary = json.loads((place.results / "summary.json").read_text())
    assert summary["winner"] == "z0_gas1_tmbspg4", output
    assert list(place.folder.rglob("*.pt")) == []


def test_an_engines_script_has_its_own_within_the_steps(place: Place) -> None:
    output = own(place, micro_batches=[4])
    assert "Exercised: 1 evaluation (2 batches), 1 checkpoint (" in output
    command = (place.results / "z0_gas1_tmbspg4_soak" / "cmd.txt").read_text()
    assert "--eval-every 9 --save-every 7" in command
    assert list(place.folder.rglob("*.pt")) == []


@pytest.mark.slow
def test_an_engines_script_without_memory_for_its_evaluation_gives_way(place: Place) -> None:
    text = (SCRIPTS / "own_epochs.py").read_text()
    (place.folder / "own.py").write_text(text.replace("_every", "_at").replace("-every", "-at"))
    output = own(place, LIMIT, micro_batches=[4, 64], words=HUNGRY)
    assert "data was ended early, as after an epoch" in output
    assert_small_is_taken(place, output)


@pytest.mark.slow
def test_a_plain_script_without_memory_for_its_evaluation_gives_way(place: Place) -> None:
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 64]"
    argv = (*QUICK, CONSENT, LIMIT, knob, str(SCRIPTS / "epochs.py"), "--batch-size", "4")
    code, output = place.run("--autotuning=tune", *argv, *HUNGRY)
    assert code == 0, output
    assert "data was ended early, as after an epoch" in output
    assert_small_is_taken(place, output)
