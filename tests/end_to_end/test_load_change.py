"""The real command while another load comes and goes; the script makes that load itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Place

SCRIPT = Path(__file__).parent / "scripts" / "loaded.py"
CONFIG = {
    "train_micro_batch_size_per_gpu": [1, 4, 16],
    "train_batch_size": 16,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "autotuning": {"enabled": True},
}
BEST, LABEL = "z0_gas1_tmbspg16", "ZeRO 0 · micro 16 · accum 1"
THIRD = "3"
"""Launch: after the profile run and the baseline comes what is predicted to be the best."""


@pytest.mark.slow
def test_a_load_during_one_trial_does_not_cost_it_the_choice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADED", THIRD)
    place.write_config(CONFIG)
    code, output = place.tune("--good-enough=0%", script=str(SCRIPT))
    assert code == 0, output
    assert f"re-measured 1    {LABEL}" in output
    assert f"{LABEL} took " in (place.results / "summary.txt").read_text()
    summary = place.summary()
    assert summary["winner"] == BEST
    doubted = [line["again"]["name"] for line in place.journal("again") if "name" not in line]
    assert f"{BEST}_again" in doubted
    code, shown = place.run("show", str(place.results))
    assert code == 0
    assert " re-measured." in shown.splitlines()[0]
