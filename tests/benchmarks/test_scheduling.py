"""Trials of several sizes on many simulated hosts, by the controller itself."""

from __future__ import annotations

import pytest

from .conftest import import_benchmark

scheduling = import_benchmark("scheduling")


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "TRIALS", 60)


@pytest.mark.parametrize("mix", scheduling.MIXES)
def test_hosts_are_hardly_ever_idle_and_no_large_trial_starves(mix: str) -> None:
    found = scheduling.simulate(mix, seed=2)
    assert found.idle < 0.05
    assert found.head_wait_s <= 2.0 * found.longest_s
