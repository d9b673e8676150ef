"""Extensions of another package: one file and an entry point are enough to tune with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .conftest import Place

TOYS = Path(__file__).parents[1] / "contracts"


def install(place: Place, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    site = place.folder / "site"
    about = site / "toys-1.0.dist-info"
    about.mkdir(parents=True)
    for file in ("toy_engine.py", "toy_strategy.py"):
        shutil.copy(TOYS / file, site)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(rows)
    monkeypatch.setenv("PYTHONPATH", str(site))


def test_a_tune_runs_its_trials_by_the_engine_of_another_package(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch, "[autoconf_launch.engine]\ntoy = toy_engine:ToyEngine\n")
    code, output = place.tune("--launcher=toy", "--budget=1trials")
    assert code == 0, output
    assert "The toy engine is at work (toy)." in output
    summary = place.summary()
    devices = json.loads((place.results / "env.json").read_text())["devices"]
    assert summary["winner"] is not None
    assert [device["host"] for device in devices] == ["toy"]


def test_a_tune_proposes_by_the_strategy_of_another_package(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch, "[autoconf_launch.strategy]\ntoy = toy_strategy:Toy\n")
    code, output = place.tune("--tuner-type=toy", "--tuner-num-trials=1")
    assert code == 0, output
    assert place.summary()["winner"] is not None


def test_a_strategy_that_cannot_be_made_is_refused_in_one_sentence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch, "[autoconf_launch.strategy]\nbare = toy_strategy:Bare\n")
    code, output = place.tune("--tuner-type=bare")
    assert code == 2
    assert output.splitlines() == [
        "autoconf-launch: The entry point bare = toy_strategy:Bare of "
        "autoconf_launch.strategy cannot be used (TypeError: Bare() takes no arguments); it is "
        "called with the objective; correct it, or uninstall its package."
    ]
