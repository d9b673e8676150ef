"""Any sampler of Optuna, if that is installed: ``optuna:TPESampler``.

A sampler draws from a box, the pool is a list: the nearest row that is left is taken. Of a trial
that ran out of memory a sampler learns a constraint that is not met and the worst cost so far; a
trial that failed otherwise has no value at all.
"""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module
from typing import Any

import numpy as np

from autoconf_launch.core import ConfigError, nearest_known

from ..space import CandidateTable, Floats, Ints, Objective, Record, concat, is_out_of_memory
from .base import Ask

_DEFAULT = "TPESampler"
_DRAWS = 2
"""Draws of a check. CMA-ES in Optuna draws the first one at random."""
_NOT_MET = 0.01
"""Share by which a trial is taken to exceed memory at least."""


def optuna_search(objective: Objective, sampler: str = _DEFAULT) -> OptunaSearch:
    """A strategy by the name of a sampler.

    Raises:
        ConfigError: Optuna is missing, or has no such sampler, or it needs more than a name.
    """
    try:
        module: Any = import_module("optuna")
    except ImportError as error:
        raise ConfigError(
            "The tuner optuna needs Optuna 5 or later; install 'autoconf-launch[optuna]'."
        ) from error
    known = {
        name: kind
        for name, kind in vars(module.samplers).items()
        if inspect.isclass(kind)
        and issubclass(kind, module.samplers.BaseSampler)
        and not inspect.isabstract(kind)
    }
    if sampler not in known:
        raise ConfigError(f"Optuna has no sampler {sampler!r}; {nearest_known(sampler, known)}")
    found = OptunaSearch(objective, module, known[sampler])
    found.check()
    return found


class OptunaSearch:
    """See the module."""

    def __init__(self, objective: Objective, optuna: Any, sampler: type[Any]) -> None:
        self._objective = objective
        self._optuna = optuna
        self._sampler = sampler

    def check(self) -> None:
        """Make the sampler and draw from it, as some import their dependencies only then.

        Raises:
            ConfigError: it needs another package, or more than a name.
        """
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        try:
            study = self._optuna.create_study(sampler=self._make_sampler(0))
            for cost in range(_DRAWS):
                study.tell(study.ask(self._box(np.array([[1, 1]]))), cost)
        except (ImportError, TypeError) as error:
            why = _missing_package(error) or f"cannot be used: {error}"
            raise ConfigError(f"The sampler {self._sampler.__name__} {why}.") from error

    def propose(self, ask: Ask) -> tuple[int, ...]:
        left = ask.free_rows
        known = [record.trial.candidate for record in ask.history]
        known += [trial.candidate for trial in ask.pending]
        ranks = _ranks(concat((CandidateTable.from_candidates(known), ask.pool)))
        of_pool = ranks[len(known) :]
        study = self._study(ranks, ask.history, len(known), ask.generator())
        chosen: list[int] = []
        while len(chosen) < ask.count and len(left):
            asked = study.ask(self._box(ranks)).params
            point = np.array([asked[f"k{i}"] for i in range(ranks.shape[1])], float)
            nearest = int(left[np.argmin(_distance(of_pool[left], point, ranks))])
            chosen.append(nearest)
            left = left[left != nearest]
        return tuple(chosen)

    def _study(
        self,
        ranks: Ints,
        history: tuple[Record, ...],
        known: int,
        draw: np.random.Generator,
    ) -> Any:
        """Optuna's study of results and running trials."""
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=self._make_sampler(int(draw.integers(2**31))))
        costs = [self._cost(record) for record in history]
        worst = max((cost for cost in costs if cost is not None), default=0.0)
        state = optuna.trial.TrialState
        for i in range(known):
            told: dict[str, Any] = {"state": state.FAIL if i < len(history) else state.RUNNING}
            if i < len(history) and costs[i] is not None:
                told = {"value": costs[i], "constraints": {"memory": _excess(history[i])}}
            elif i < len(history) and is_out_of_memory(history[i]):
                told = {"value": worst, "constraints": {"memory": _excess(history[i])}}
            params = {f"k{k}": int(rank) for k, rank in enumerate(ranks[i])}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=self._box(ranks), **told)
            )
        return study

    def _make_sampler(self, seed: int) -> Any:
        """The sampler with a seed, avoiding running trials if it can."""
        takes = inspect.signature(self._sampler).parameters
        given: dict[str, object] = {"seed": seed, "constant_liar": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls some of these experimental
            return self._sampler(**{name: x for name, x in given.items() if name in takes})

    def _box(self, ranks: Ints) -> dict[str, Any]:
        whole = self._optuna.distributions.IntDistribution
        return {f"k{k}": whole(0, int(top)) for k, top in enumerate(ranks.max(axis=0))}

    def _cost(self, record: Record) -> float | None:
        """Logarithm of the cost; None if the trial failed."""
        if record.measurement is None:
            return None
        samples = record.trial.candidate.layout.global_batch
        return float(np.log(self._objective.cost_s(record.measurement.mean_step_s, samples)))


def _missing_package(error: ImportError | TypeError) -> str | None:
    """Package to install for a sampler, if that is the reason for its failure."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name is None:
        return None
    return (
        f"needs the Python module {name}, which is not installed; install it, for example with "
        f"pip install {name}"
    )


def _excess(record: Record) -> float:
    """Memory over the limit as a share of it; below 0 if it was enough."""
    memory = record.outcome.memory
    share = (
        -1.0
        if memory is None or not memory.limit_bytes
        else (memory.peak_bytes / memory.limit_bytes - 1.0)
    )
    return max(share, _NOT_MET) if is_out_of_memory(record) else min(share, 0.0)


def _ranks(table: CandidateTable) -> Ints:
    """Positions of the values of each knob that varies, among all that occur."""
    found = [np.unique(column.codes, return_inverse=True)[1] for _, column in table.columns]
    varying = [ranks for ranks in found if ranks.max(initial=0) > 0]
    return np.stack(varying, axis=1) if varying else np.zeros((len(table), 0), np.int64)


def _distance(rows: Ints, point: Floats, ranks: Ints) -> Floats:
    return np.asarray((np.abs(rows - point) / np.maximum(ranks.max(axis=0), 1)).sum(axis=1))
