"""Spreads of ``--calibrate``, and how well spreads from other tables serve a table.

    python benchmarks/planner_calibration.py [--draws 20] [--write]

The spreads make the errors of the published tables most probable (Rasmussen and
Williams 2006, equation 2.30). Each table is then calibrated on four random rows of each model,
once with the spreads in use and once with spreads that were found without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.planner.calibration import EFFECTS, NOISE, SPREADS, error_logs
from autoconf_launch.autotuner.space.table import Floats, Ints
from autoconf_launch.launcher.measurements.measured_runs import predicted_s, runs_of
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements
from autoconf_launch.launcher.measurements.validation import likeness_of

FOLDER = Path(__file__).parent / "ground_truth"
RESULT = Path(__file__).parent / "results" / "planner_calibration.md"
NOT_LEARNED_FROM = ("bigscience_v100",)
"""Its source says ±40 %."""
_MOST_ROWS = 200
_COUNT = 4
_WORSE = 0.01
_START = 0.03
_ROUNDS = 90


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Settings of one file, their GPUs, and the covariance of each effect, (E, R, R)."""

    name: str
    gpus_R: Ints
    measured_s_R: Floats
    predicted_s_R: Floats
    models: tuple[tuple[int, ...], ...]
    covariances: Floats

    @property
    def missing_R(self) -> Floats:
        """Logarithms of the errors that calibration must find."""
        return error_logs(self.predicted_s_R, self.measured_s_R)


def main() -> None:
    """Print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20, help="random draws of each table")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    tables = [one for path in sorted(FOLDER.glob("*.csv")) if (one := table_of(path))]
    text = report(tables, flags.draws)
    print(text)
    if flags.write:
        RESULT.write_text(f"# Calibration on four rows of each model\n\n{text}\n")


def table_of(path: Path) -> Table | None:
    """A file's settings, repeats merged; None if none can be predicted."""
    repeats: dict[tuple[object, ...], list[PublishedRow]] = {}
    for one in read_measurements(path).measurements:
        if one.step_time_s is not None:
            repeats.setdefault(one.settings, []).append(one)
    kept = [same[0] for same in repeats.values()]
    runs, _ = runs_of(kept)
    if not runs:
        return None
    rows = [i for run in runs for i in run.rows]
    seconds = [np.median([one.step_time_s or np.nan for one in same]) for same in repeats.values()]
    names = [kept[i].shape.name for i in rows]
    likeness = likeness_of(runs)
    return Table(
        name=path.stem,
        gpus_R=np.array([kept[i].gpus for i in rows]),
        measured_s_R=np.array(seconds)[rows],
        predicted_s_R=predicted_s(runs, len(kept))[rows],
        models=tuple(
            tuple(i for i, other in enumerate(names) if other == name)
            for name in dict.fromkeys(names)
        ),
        covariances=likeness.covariances(np.arange(len(rows))),
    )


def fit_spreads(tables: Sequence[Table]) -> Floats:
    """Spread of each effect, and of the noise at the end, by ascent of their probability.

    Of large tables only some rows count, so that no single table decides.
    """
    at = np.full(len(EFFECTS) + 1, np.log(_START))
    mean, size = np.zeros_like(at), np.zeros_like(at)
    parts = [_sample(one) for one in tables]
    for i in range(_ROUNDS):
        slope = sum(_slope(at, *part) for part in parts)
        mean, size = 0.8 * mean + 0.2 * slope, 0.95 * size + 0.05 * slope**2
        pace = 0.12 * (1.0 - 0.8 * i / _ROUNDS)
        at = np.clip(at - pace * mean / (np.sqrt(size) + 1e-6), np.log(2e-3), np.log(0.4))
    return np.asarray(np.exp(at))


def _sample(one: Table) -> tuple[Floats, Floats]:
    rows = np.random.default_rng(0).permutation(len(one.measured_s_R))[:_MOST_ROWS]
    return one.covariances[:, rows][:, :, rows], one.missing_R[rows]


def _slope(at: Floats, covariances: Floats, missing: Floats) -> Floats:
    """Slope of the negative logarithm of the probability (equation 5.9 of the same book)."""
    every = np.concatenate([covariances, np.eye(len(missing))[None]])
    variances = np.exp(2.0 * at)
    inverse = np.linalg.inv(np.tensordot(variances, every, axes=1))
    solved = inverse @ missing
    inner = inverse - np.outer(solved, solved)
    return np.asarray(variances * np.tensordot(every, inner, axes=2))


def score(one: Table, spreads: Floats, draws: int) -> list[tuple[float, bool]]:
    """Error after over before on rows that were not drawn, and whether it grew by a point."""
    found = []
    alike = np.tensordot(np.square(spreads[:-1]), one.covariances, axes=1)
    for seed in range(draws):
        generator = np.random.default_rng(seed)
        drawn = np.concatenate([generator.permutation(mine)[:_COUNT] for mine in one.models])
        rest = np.setdiff1d(np.arange(len(one.measured_s_R)), drawn)
        if len(rest):
            after = one.predicted_s_R * np.exp(_correction(alike, drawn, one, spreads[-1]))
            errors = [_error(one, rest, seconds) for seconds in (after, one.predicted_s_R)]
            found.append((errors[0] / errors[1], errors[0] - errors[1] > _WORSE))
    return found


def _correction(alike: Floats, drawn: Ints, one: Table, noise: float) -> Floats:
    among = alike[np.ix_(drawn, drawn)] + noise**2 * np.eye(len(drawn))
    return np.asarray(alike[:, drawn] @ np.linalg.solve(among, one.missing_R[drawn]))


def _error(one: Table, rows: Ints, seconds: Floats) -> float:
    return float(np.abs(seconds[rows] / one.measured_s_R[rows] - 1.0).mean())


def report(tables: Sequence[Table], draws: int) -> str:
    """Spreads, then a row for each table."""
    used = np.array([*SPREADS, NOISE])
    known = [one for one in tables if one.name not in NOT_LEARNED_FROM]
    lines = ["| spread of | in use | most probable |", "|---|---|---|"]
    for name, mine, best in zip((*EFFECTS, "noise"), used, fit_spreads(known), strict=True):
        lines.append(f"| {name} | {mine:.3f} | {best:.3f} |")
    lines += ["", "| table | error ratio | worse by over 1 point | left out: ratio | worse |"]
    lines.append("|---|---|---|---|---|")
    every: list[list[tuple[float, bool]]] = [[], []]
    for one in tables:
        others = fit_spreads([other for other in known if other is not one])
        both = [score(one, spreads, draws) for spreads in (used, others)]
        if both[0]:
            lines.append(_row(one.name, both))
            every = [[*old, *new] for old, new in zip(every, both, strict=True)]
    return "\n".join([*lines, _row("all draws", every)])


def _row(name: str, both: Sequence[Sequence[tuple[float, bool]]]) -> str:
    cells = [
        f"{np.median([ratio for ratio, _ in one]):.2f} | {np.mean([grew for _, grew in one]):.0%}"
        for one in both
    ]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
