"""An engine that another package brings: one file and an entry point are enough to tune on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .conftest import SCRIPT, Place

ENGINE = Path(__file__).parents[1] / "contracts" / "toy_engine.py"


def test_a_tune_runs_its_trials_by_the_engine_of_another_package(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = place.folder / "site"
    about = site / "toys-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(ENGINE, site)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    rows = "[autoconf_launch.engine]\ntoy = toy_engine:ToyEngine\n"
    (about / "entry_points.txt").write_text(rows)
    monkeypatch.setenv("PYTHONPATH", str(site))
    words = ("--launcher=toy", "--tuner-num-trials=1", "--effort=quick", "--soak-steps=0")
    process = place.start("--autotuning=tune", *words, str(SCRIPT), "--config", "config.json")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert "The toy engine is at work (toy)." in output
    summary = json.loads((place.results / "summary.json").read_text())
    devices = json.loads((place.results / "env.json").read_text())["devices"]
    assert summary["winner"] is not None
    assert [device["host"] for device in devices] == ["toy"]
