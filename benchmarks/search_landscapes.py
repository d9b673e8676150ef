"""Trials that tuners need on published measurements, and whether they stop at the right time.

    python benchmarks/search_landscapes.py [--seeds 5] [--write]

Groups of ``benchmarks/ground_truth`` with 8 configurations or more. The planner's constants are
fitted again without the rows of the group's model (``planner_leave_one_out.py``), and its errors
on the other models of the same table, which ran on the same machines, correct its predictions.
"constants alone" is without that correction, "as shipped" is with the constants that users get,
which all these tables informed except the mixed cluster's.
Optuna is left out if it is not installed. No GPU is needed; it takes some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from deepspeed_ranker import load_tuner
from planner_leave_one_out import all_rows, physics_without_each
from recorded_landscapes import GROUP_BY, read_landscapes
from tuner_walk import (
    ExplorationOrder,
    Landscape,
    ReplayRules,
    Score,
    run,
    score,
)

from autoconf_launch.autotuner.cost.hardware import DEFAULT_PHYSICS, Physics
from autoconf_launch.core import ConfigError

FOLDER = Path(__file__).parent / "ground_truth"
RESULT = Path(__file__).parent / "results" / "search_landscapes.md"
SMALLEST_GROUP = 8
GOOD_ENOUGH = 0.02
TABLES = {
    "vtrain_single_node": "<= 1.3, no group above 3",
    "vtrain_multi_node": "<= 2.5",
    "amp_homogeneous_t4": "<= 3, at most 1 out of memory",
    "amp_heterogeneous_v100_t4": "<= 6",
}
"""Targets: mean trials until within 2 % of the best."""
FITTED_AS = {"amp_heterogeneous_v100_t4": "amp_homogeneous_t4"}
"""The same model in another table, whose rows are left out instead."""
NOISES = (0.0, 0.02, 0.05)
NOISE_SEEDS = 3
SHORT_TABLE = "bigscience_a100"
"""Groups of 4, of which two noisy trials may seem to decide."""
OTHERS = ("gridsearch", "random", "optuna:TPESampler", "deepspeed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A landscape with its scores for each seed."""

    landscape: Landscape
    scores: tuple[Score, ...]


def main() -> None:
    """Print the tables, and write them if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of tuners that draw")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    text = "\n\n".join(report(flags.seeds))
    print(text)
    if flags.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(f"{PREAMBLE}\n{text}\n", encoding="utf-8")


PREAMBLE = """# The search on published measurements

Made by `python benchmarks/search_landscapes.py --write`; that file says what is compared. Trials
are counted until one is within 2 % of the best of its group; `model_based` does not draw, so that
one seed is all. "stopped after" is each tuner's own rule: `model_based` stops when its certificate
says that no more than 2 % can be gained, or, like all others, after 5 trials that are no better.
A certificate is counted where candidates were left untried; it is true where none of them gains
more than it said.

The planner has not seen a row of the group's model: its constants are fitted on other models, and
its errors on the other models of the table, if there are any, correct it by the Gaussian process
of `validate --calibrate`, whose spreads are the same for all tables. "constants alone" is without
that, "as shipped" with the constants that users get. What helps most is a model of the same width:
its layers have the same kernels.

These tables were looked at while the search was written. Three choices followed from what was
seen here, and its numbers flatter it by as much: that other models correct the planner, that
certificates hold with 98 % (at 95 % one of 48 was false with the constants as shipped; 90 to
99.5 % were tried), and that the first trial weighs the chance to fit against the gain over the
middle row. The trees were chosen elsewhere (`search_models.md`); the share of a prediction's
variance that no other row shows was set here, between 0.35 and 1, by the trials until a stop.
That the stages of the T4 table are as its rows give them, and that its attention keeps its scores,
was found missing in the models of time and memory when the first trials there were looked at. That
what a curve of throughput bounds
carries the noise of its trials followed from the last table: of the groups of 4, which two trials
may close, 3 of 32 certificates were false with 5 % noise.
"""


def report(seeds: int) -> Iterator[str]:
    """Sections of the text."""
    physics = left_out_physics()
    left_out, shipped = landscapes(physics), landscapes(None)
    alone = landscapes(physics, others=False)
    runs: dict[str, dict[str, list[Group]]] = {
        "model_based": replay_all(left_out, "model_based"),
        "model_based, constants alone": replay_all(alone, "model_based"),
        "model_based, as shipped": replay_all(shipped, "model_based"),
        "model_based, staged": replay_all(left_out, "model_based", exploration="staged"),
    }
    for tuner in OTHERS:
        try:
            load_tuner(tuner)
        except ConfigError:
            continue
        count = 1 if tuner == "gridsearch" else seeds
        runs[tuner] = replay_all(left_out, tuner, seeds=count)
    yield "## Trials until within 2 % of the best, mean over groups\n\n" + trials_table(runs)
    yield "## Each tuner's own stopping\n\n" + stopping_table(runs)
    yield "## Groups of vtrain_multi_node, and those that took over 3 trials\n\n" + worst_table(
        runs["model_based"]
    )
    yield "## With noise added to every measurement, constants alone\n\n" + noise_table(
        [*(group for found in alone.values() for group in found), *short_groups()]
    )


def short_groups() -> list[Landscape]:
    """All groups of the table of short ones."""
    of = _physics_of(None, SHORT_TABLE)
    file = read_landscapes(FOLDER / f"{SHORT_TABLE}.csv", GROUP_BY, of, others=False)
    return [group for group in file.groups if len(group) > 1]


def noise_table(groups: Sequence[Landscape]) -> str:
    """A row for each noise; regrets and certificates are of what was measured with it."""
    header = ("noise", "runs", "trials to 2 %", "stopped after", "groups within 1 %")
    header += ("certificates true",)
    rows = []
    for noise in NOISES:
        drawn = [
            [_noisy(group, noise, seed) for group in groups]
            for seed in range(NOISE_SEEDS if noise else 1)
        ]
        found = [replay_all({"": one}, "model_based")[""] for one in drawn]
        scores = [group.scores[0] for one in found for group in one]
        told = [s.certificate_true for s in scores if s.certificate_true is not None]
        rows.append(
            [
                f"{100 * noise:.0f} %",
                str(len(scores)),
                f"{np.mean([s.trials_to[0] for s in scores]):.2f}",
                f"{np.mean([s.stopped_at for s in scores]):.1f}",
                f"{100 * np.mean([s.final_regret <= 0.01 for s in scores]):.0f} %",
                f"{sum(told)} of {len(told)}",
            ]
        )
    return markdown(rows, header)


def _noisy(landscape: Landscape, noise: float, seed: int) -> Landscape:
    """The landscape with a random error in every time."""
    draw = np.random.default_rng((seed, len(landscape)))
    errors = draw.normal(0.0, noise, len(landscape))
    return replace(landscape, step_s_C=landscape.step_s_C * np.exp(errors))


def left_out_physics() -> dict[tuple[str, str], Physics]:
    """Constants for each table and model, fitted without it."""
    return {(table, name): found for table, name, found in physics_without_each(all_rows())}


def landscapes(
    physics: dict[tuple[str, str], Physics] | None, *, others: bool = True
) -> dict[str, list[Landscape]]:
    """Large groups of each table."""
    found: dict[str, list[Landscape]] = {}
    for table in TABLES:
        of = _physics_of(physics, FITTED_AS.get(table, table))
        file = read_landscapes(FOLDER / f"{table}.csv", GROUP_BY, of, others=others)
        found[table] = [group for group in file.groups if len(group) >= SMALLEST_GROUP]
    return found


def _physics_of(
    physics: dict[tuple[str, str], Physics] | None, table: str
) -> Callable[[str], Physics]:
    return lambda model: DEFAULT_PHYSICS if physics is None else physics[table, model]


def replay_all(
    tables: dict[str, list[Landscape]],
    tuner: str,
    *,
    seeds: int = 1,
    exploration: ExplorationOrder = "global",
) -> dict[str, list[Group]]:
    """Every group of every table."""
    ours = tuner == "model_based"
    rules = ReplayRules(
        exploration=exploration, good_enough=GOOD_ENOUGH if ours else None, to_saturation=ours
    )
    strategy = load_tuner(tuner)
    return {
        table: [
            Group(
                landscape=group,
                scores=tuple(
                    score(group, run(group, strategy, rules, seed)) for seed in range(seeds)
                ),
            )
            for group in groups
        ]
        for table, groups in tables.items()
    }


def trials_table(runs: dict[str, dict[str, list[Group]]]) -> str:
    """A row for each landscape, a column for each tuner: mean, and the worst group's mean."""
    header = ("landscape", "groups", "asked", "random (expected)", *runs)
    rows = []
    for table, asked in TABLES.items():
        groups = next(iter(runs.values()))[table]
        expected = np.mean([_expected_position(group.landscape) for group in groups])
        cells = [table, str(len(groups)), asked, f"{expected:.1f}"]
        for found in runs.values():
            means = [np.mean([s.trials_to[0] for s in group.scores]) for group in found[table]]
            cells.append(f"{np.mean(means):.2f} (worst {max(means):.0f})")
        rows.append(cells)
    return markdown(rows, header)


def _expected_position(landscape: Landscape) -> float:
    """Mean position of the first good row in a random order."""
    good = int((landscape.regret_C <= 0.02).sum())
    return (len(landscape) + 1) / (good + 1)


def stopping_table(runs: dict[str, dict[str, list[Group]]]) -> str:
    """A row for each tuner, over all groups and seeds of all landscapes."""
    header = ("tuner", "stopped after", "groups within 1 %", "mean regret %", "worst regret %")
    header += ("out of memory", "certificates true")
    rows = []
    for name, tables in runs.items():
        groups = [group for found in tables.values() for group in found]
        scores = [one for group in groups for one in group.scores]
        within = np.mean([np.mean([s.final_regret <= 0.01 for s in g.scores]) for g in groups])
        regrets = [100 * one.final_regret for one in scores]
        told = [s.certificate_true for s in scores if s.certificate_true is not None]
        rows.append(
            [
                name,
                f"{np.mean([s.stopped_at for s in scores]):.1f}",
                f"{100 * within:.0f} %",
                f"{np.mean(regrets):.2f}",
                f"{max(regrets):.1f}",
                f"{np.mean([s.out_of_memory_trials for s in scores]):.2f}",
                f"{sum(told)} of {len(told)}" if told else "-",
            ]
        )
    return markdown(rows, header)


def worst_table(tables: dict[str, list[Group]]) -> str:
    """Table with a row for each group that needs a separate look."""
    header = ("group", "configurations", "to 2 %", "stopped after", "final regret %", "OOM trials")
    rows = []
    for table, groups in tables.items():
        for group in groups:
            first = group.scores[0]
            if table == "vtrain_single_node" and first.trials_to[0] <= 3:
                continue
            rows.append(
                [
                    group.landscape.name,
                    str(len(group.landscape)),
                    str(first.trials_to[0]),
                    str(first.stopped_at),
                    f"{100 * first.final_regret:.1f}",
                    str(first.out_of_memory_trials),
                ]
            )
    return markdown(rows, header)


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """A pipe table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
