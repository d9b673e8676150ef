"""Speed of finding a known fastest layout, in a search's order and in the planner's.

    python benchmarks/search_order.py [--write]

For each model of ``benchmarks/ground_truth`` on one number of GPUs with one global batch (8
settings or more): how much slower than the truly fastest is the best of the first N that are run,
by predicted time and in the order of ``search grid=planner`` (``recommend/run_order.py``),
once with the spreads in use and once with spreads that were found without the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from planner_calibration import FOLDER, NOT_LEARNED_FROM, Table, fit_spreads, table_of

from autoconf_launch.autotuner.planner.calibration import NOISE, SPREADS
from autoconf_launch.autotuner.sizing.search_space import plausible_order
from autoconf_launch.autotuner.space.table import Floats, Ints
from autoconf_launch.launcher.measurements.measured_runs import runs_of
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

RESULT = Path(__file__).parent / "results" / "search_order.md"
RUNS = (1, 2, 3, 4, 6, 8, 16)
LEAST = 8
_ORDERS = ("by predicted time", "as a search runs them", "the same, spreads left out")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Settings that are compared with each other; shapes as in ``planner_calibration``."""

    table: Table
    rows: Ints

    @property
    def as_predicted(self) -> Ints:
        """The group's rows, the fastest prediction first."""
        return self.rows[np.argsort(self.table.predicted_s_R[self.rows], kind="stable")]

    def as_run(self, spreads: Floats) -> Ints:
        """Candidates in a search's order."""
        rows = self.as_predicted
        among = self.table.covariances[:, rows][:, :, rows]
        alike = np.tensordot(np.square(spreads[:-1]), among, axes=1)
        alike += spreads[-1] ** 2 * np.eye(len(rows))
        log_s = np.log(self.table.predicted_s_R[rows])
        return rows[plausible_order(log_s, np.ones(len(rows)), np.asarray(alike))]

    def regrets(self, order: Ints) -> tuple[float, ...]:
        """Regret of the best of the first N over the best of all, for each N of ``RUNS``."""
        seconds = self.table.measured_s_R[order]
        return tuple(float(seconds[:n].min() / seconds.min() - 1.0) for n in RUNS)


def main() -> None:
    """Print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    tables = [one for path in sorted(FOLDER.glob("*.csv")) if (one := table_of(path))]
    text = report(tables)
    print(text)
    if flags.write:
        RESULT.write_text(f"# The order of a search where the fastest is known\n\n{text}\n")


def groups(table: Table) -> Iterator[Group]:
    """All of a table that are large enough."""
    by_key: dict[tuple[object, ...], list[int]] = {}
    for row, one in enumerate(_settings(table.name)):
        key = (one.shape.name, one.gpu, one.gpus, one.global_batch)
        by_key.setdefault(key, []).append(row)
    for rows in by_key.values():
        if len(rows) >= LEAST:
            yield Group(table=table, rows=np.array(rows))


def _settings(name: str) -> list[PublishedRow]:
    """Published rows behind the rows of ``table_of``."""
    measured = read_measurements(FOLDER / f"{name}.csv").measurements
    kept = list({one.settings: one for one in measured if one.step_time_s is not None}.values())
    return [kept[i] for run in runs_of(kept)[0] for i in run.rows]


def mean_regrets(table: Table, others: Sequence[Table]) -> tuple[int, Floats] | None:
    """Number of groups, and the mean regret of each order after each number of runs."""
    found = list(groups(table))
    if not found:
        return None
    used = np.array([*SPREADS, NOISE])
    without = fit_spreads(others)
    every = [
        [one.regrets(order) for order in (one.as_predicted, one.as_run(used), one.as_run(without))]
        for one in found
    ]
    return len(found), np.asarray(np.mean(every, axis=0))


def report(tables: Sequence[Table]) -> str:
    """Mean regrets as Markdown, a row for each table and order."""
    counts = " | ".join(f"{n}" for n in RUNS)
    lines = [_HEAD, "", f"| table | groups | order | {counts} |", "|---" * (3 + len(RUNS)) + "|"]
    known = [one for one in tables if one.name not in NOT_LEARNED_FROM]
    for one in known:
        found = mean_regrets(one, [other for other in known if other is not one])
        if found is None:
            continue
        for name, regrets in zip(_ORDERS, found[1], strict=True):
            cells = " | ".join(f"{regret:.2%}" for regret in regrets)
            lines.append(f"| {one.name} | {found[0]} | {name} | {cells} |")
    return "\n".join(lines)


_HEAD = """Made by `python benchmarks/search_order.py --write`: how much slower than the truly
fastest the best of the first N runs is, the mean of all groups of a table (a model, a number of
GPUs, a global batch; at least 8 settings)."""


if __name__ == "__main__":
    main()
