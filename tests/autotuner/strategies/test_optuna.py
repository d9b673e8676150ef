from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.space import CandidateTable, FailedTrial, Record, Trial
from autoconf_launch.autotuner.strategies import Ask, load_strategy
from autoconf_launch.core import Candidate, ConfigError, Failure, FailureKind, Layout, MemoryUse

from ..builders import launch, measurement, table, trial_of


def candidate(micro: int) -> Candidate:
    return Candidate(layout=Layout(micro_batch=micro))


def pool(*micro_batches: int) -> CandidateTable:
    return table(*(f"micro={micro}" for micro in micro_batches))


def trial(number: int, micro: int) -> Trial:
    return trial_of(number, candidate(micro))


def measure(number: int, micro: int, step_s: float) -> Record:
    return launch(trial(number, micro), measurement(step_s, samples=micro), wall_s=0.0)


def failure(number: int, micro: int, kind: FailureKind = FailureKind.OUT_OF_MEMORY) -> Record:
    memory = MemoryUse(free_before_bytes=100, peak_bytes=130, limit_bytes=100)
    outcome = FailedTrial(failure=Failure(kind=kind, detail=""), memory=memory)
    return launch(trial(number, micro), outcome, wall_s=0.0)


def tell(history: tuple[Record, ...]) -> list[Any]:
    """The trials as Optuna keeps them."""
    optuna = pytest.importorskip("optuna")
    kept: list[Any] = []

    class Watching(optuna.samplers.RandomSampler):  # type: ignore[misc, name-defined]
        def before_trial(self, study: Any, trial: Any) -> None:
            kept.extend(study.get_trials(deepcopy=False)[: len(history)])

    strategy: Any = load_strategy("optuna:RandomSampler")
    strategy._sampler = Watching
    strategy.propose(Ask(pool=pool(*range(1, 9)), history=history))
    return kept


def test_the_sampler_learns_which_side_is_faster() -> None:
    pytest.importorskip("optuna")
    history = tuple(
        measure(n, m, 1.0) for n, m in enumerate((1, 2, 3, 4, 5, 6, 30, 31, 32, 33, 34, 35))
    )
    found = [
        load_strategy("optuna:TPESampler").propose(
            Ask(pool=pool(7, 29), history=history, seed=seed)
        )
        for seed in range(10)
    ]
    assert found.count((1,)) >= 8


def test_trials_have_their_memory_as_a_constraint() -> None:
    kept = tell((measure(0, 1, 1.0), measure(1, 2, 8.0), failure(2, 3)))
    assert kept[2].constraints["memory"] == pytest.approx(0.3)
    assert kept[2].value == max(one.value for one in kept[:2])
    assert all(one.constraints["memory"] <= 0 for one in kept[:2])
    kept = tell((measure(0, 1, 1.0), failure(1, 2, FailureKind.CRASHED)))
    assert (kept[1].state.name, kept[1].value) == ("FAIL", None)
    memory = MemoryUse(free_before_bytes=100, peak_bytes=80, limit_bytes=100)
    one = measure(0, 1, 1.0)
    assert one.measurement is not None
    kept = tell((replace(one, outcome=replace(one.measurement, memory=memory)),))
    assert kept[0].constraints["memory"] == pytest.approx(-0.2)


def test_an_unknown_sampler_is_refused_with_the_nearest_one() -> None:
    pytest.importorskip("optuna")
    with pytest.raises(ConfigError, match="no sampler 'TPESampl'; did you mean 'TPESampler'"):
        load_strategy("optuna:TPESampl")
    pytest.importorskip("optuna")
    with pytest.raises(ConfigError, match="did you mean 'TPESampler'"):
        load_strategy("optuna:tpesampler")
    pytest.importorskip("optuna")
    with pytest.raises(ConfigError, match="no sampler 'BaseSampler'"):
        load_strategy("optuna:BaseSampler")
    pytest.importorskip("optuna")
    with pytest.raises(ConfigError, match="GridSampler cannot be used"):
        load_strategy("optuna:GridSampler")


def test_missing_modules_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(ConfigError, match=r"needs the Python module cmaes.* pip install cmaes"):
        load_strategy("optuna:CmaEsSampler")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"install 'autoconf-launch\[optuna\]'"):
        load_strategy("optuna")
