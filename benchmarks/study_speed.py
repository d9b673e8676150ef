"""Processor time of a study of many trials, without the trials, and its growth.

    python benchmarks/study_speed.py [--tuners gridsearch random model_based] [--write]

A study proposes trials and records their results until a given number is reached: a synthetic
landscape of some 2,500 candidates with predictions that are off by 20 %, launches that differ by
3 % without cause, and repeats of the baseline and the best as the study wants them. Four of its
knobs vary; "xgboost" has six, from which on model_based takes the same trees. No trial takes any
time here, so that only the study counts, in seconds of the processor; the exponent is the power
law's between the smallest and the largest size. ``--certify`` has the study bound the gain of the
untried candidates after every trial, as in a search that may end for it.
``--write`` puts the table into ``benchmarks/results/study_speed.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # others would only spin, and be counted
import numpy as np

from autoconf_launch.autotuner.search.limits import SearchLimits
from autoconf_launch.autotuner.search.study import Study
from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.autotuner.space.space import (
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
)
from autoconf_launch.autotuner.space.table import Floats, PredictionTable
from autoconf_launch.autotuner.space.trial import Measurement, Record, Trial
from autoconf_launch.core import Candidate, Layout

RESULT = Path(__file__).parent / "results" / "study_speed.md"
SIZES = (125, 250, 500, 1000)
TUNERS = ("gridsearch", "random", "model_based", "xgboost")
SWITCHES = ("overlap_comm", "contiguous_gradients")
_BATCH, _RANKS = 256, 8
_WALL_S = 30.0
_STEPS = 3
_OFF, _LAUNCHES, _OF_STEPS = 0.2, 0.03, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """A space, its predictions, and the true time of a step of each candidate."""

    space: SearchSpace
    predictions: PredictionTable
    step_s: dict[Candidate, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A study; ``repeats``: launches besides its trials."""

    trials: int
    repeats: int
    seconds: float


def landscape(switches: tuple[str, ...] = (), seed: int = 0) -> Landscape:
    """Stages, micro-batches, two bucket sizes and switches around a slow baseline."""
    draw = np.random.default_rng(seed)
    baseline = Candidate(
        layout=Layout(micro_batch=1, accumulation=_BATCH // _RANKS, data_parallel=_RANKS)
    )
    buckets = tuple(10_000_000 * n for n in range(1, 6 if switches else 13))
    choices = (
        KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.FREE),
        KnobChoice("micro_batch", (1, 2, 4, 8, 16, 32), ChoiceKind.LISTED),
        KnobChoice("reduce_bucket_size", buckets, ChoiceKind.LISTED),
        KnobChoice("allgather_bucket_size", buckets[:9], ChoiceKind.LISTED),
        *(KnobChoice(name, (False, True), ChoiceKind.LISTED) for name in switches),
    )
    rule = GlobalBatchRule(pinned=_BATCH)
    space = build_space(baseline, choices, rule, AutotuningSettings())
    micro = space.table["micro_batch"]
    true_s = (1.0 / micro + 0.02 * micro) * np.exp(0.1 * draw.standard_normal(len(micro)))
    rows = map(space.table.row, range(len(space.table)))
    step_s = dict(zip(rows, true_s.tolist(), strict=True))
    return Landscape(
        space=space,
        predictions=_predict(true_s, draw),
        step_s={**step_s, baseline: 1.5},
    )


def _predict(true_s: Floats, draw: np.random.Generator) -> PredictionTable:
    off = np.exp(_OFF * draw.standard_normal(len(true_s)))
    peak_bytes = np.full(len(true_s), 1e9)
    return PredictionTable(
        peak_bytes_C=peak_bytes, step_s_C=true_s * off, band=_OFF, how="roofline", limit_bytes=8e10
    )


def study_of(given: Landscape, tuner: str, trials: int, *, bound_gain: bool = False) -> Study:
    """A study that has no reason to stop before ``trials`` trials."""
    settings = AutotuningSettings(
        tuner_type=tuner,
        strategy="global",
        tuner_num_trials=trials - 1,
        tuner_early_stopping=10**6,
        num_tuning_micro_batch_sizes=24,
    )
    enough = 1e-6 if bound_gain else None
    limits = SearchLimits(seconds=2.0 * _WALL_S * trials, least_gain=enough)
    return Study(given.space, given.predictions, settings, limits=limits)


def run(given: Landscape, tuner: str, trials: int, *, bound_gain: bool = False) -> Run:
    """Propose and record trials until the study proposes no more."""
    study = study_of(given, tuner, trials, bound_gain=bound_gain)
    draw = np.random.default_rng(0)
    elapsed_s, began_s = 0.0, time.process_time()
    while (asked := study.ask(1, elapsed_s)) and study.stop_reason() is None:
        for trial in asked:
            record = _record(given, trial, draw)
            study.end_step(trial, record.measurement.step_s if record.measurement else ())
            study.tell(record)
            elapsed_s += _WALL_S
    seconds = time.process_time() - began_s
    return Run(trials=len(study.records), repeats=len(study.repeats), seconds=seconds)


def _record(given: Landscape, trial: Trial, draw: np.random.Generator) -> Record:
    mean_s = given.step_s[trial.candidate] * math.exp(_LAUNCHES * draw.standard_normal())
    steps = mean_s * np.exp(_OF_STEPS * draw.standard_normal(_STEPS))
    layout = trial.candidate.layout
    rows = given.space.table.find(trial.candidate)
    return Record(
        trial=trial,
        outcome=Measurement(
            step_s=tuple(steps.tolist()),
            samples_per_step=layout.global_batch,
            world_size=layout.world_size,
        ),
        wall_s=_WALL_S,
        prediction=given.predictions.row(int(rows[0])) if len(rows) else None,
    )


def exponent(runs: list[Run]) -> float:
    """Exponent of the power law from the first to the last of them."""
    first, last = runs[0], runs[-1]
    return math.log(last.seconds / first.seconds) / math.log(last.trials / first.trials)


def table(found: dict[str, list[Run]]) -> str:
    """Rows of Markdown."""
    sizes = [run.trials for run in next(iter(found.values()))]
    lines = [
        "| tuner | " + " | ".join(f"{size} trials" for size in sizes) + " | exponent |",
        "|" + "---|" * (len(sizes) + 2),
    ]
    for tuner, runs in found.items():
        cells = " | ".join(f"{run.seconds:.2f} s, {run.repeats} repeats" for run in runs)
        grown = f"{exponent(runs):.2f}" if len(runs) > 1 else "-"
        lines.append(f"| {tuner} | {cells} | {grown} |")
    return "\n".join(lines)


def main() -> None:
    """Time every tuner at every size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tuners", nargs="+", default=TUNERS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--certify", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    few, many = landscape(), landscape(SWITCHES)
    run(few, "gridsearch", 8)
    run(many, "xgboost", 8)  # pays for the import
    found: dict[str, list[Run]] = {}
    for tuner in asked.tuners:
        given = many if tuner == "xgboost" else few
        runs = [run(given, tuner, size, bound_gain=asked.certify) for size in asked.sizes]
        found[tuner] = runs
    text = table(found)
    print(text)
    if asked.write:
        where = f"Seconds that a study itself takes, on one of {os.cpu_count()} CPU cores"
        RESULT.write_text(f"# Speed of a study\n\n{where} (`study_speed.py --write`).\n\n{text}\n")


if __name__ == "__main__":
    main()
