"""Check that nine of ten published steps are in their bands, also without similar measurements.

    python benchmarks/planner_bands.py [--write] [--more FOLDER]

Three bands for each setting of the published tables: with all groups that were measured, without
the groups of its GPU's architecture, and without those with its kind of model (dense or experts).
It also prints ``MEASURED_GROUPS`` of ``autotuner/planner/bands.py``. Takes ten seconds.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.planner import MeasuredGroup, Traits, step_band
from autoconf_launch.autotuner.space.table import Bools, Floats
from autoconf_launch.launcher.measurements.measured_runs import (
    predicted_s,
    runs_of,
    trainer_of,
    with_recompute,
)
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

FOLDER = Path(__file__).parent / "ground_truth"
RESULT = Path(__file__).parent / "results" / "planner_bands.md"
NOT_COUNTED = ("bigscience_v100",)
"""Its source says ±40 %."""
_COVERED = 0.9
PREAMBLE = """# Steps within their bands

Made by `python benchmarks/planner_bands.py --write`. "by GPU": with the band that
`autotuner/planner/bands.py` gives where no run on the architecture of that GPU was published;
"by kind": where none of a model of that kind (dense, or with experts) was. Asked: 85 to 95 %, with
each table counted by the root of its settings, so that 720 of one table do not decide alone.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A published step."""

    table: str
    traits: Traits
    error: float


def main() -> None:
    """Print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--more", type=Path, help="a folder with further tables")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    settings = all_settings(*([flags.more] if flags.more else []))
    groups = measured_groups(settings)
    text = coverage_table(settings, groups)
    print(text)
    print("\n" + "\n".join(_source(one) for one in groups))
    if flags.write:
        RESULT.write_text(f"{PREAMBLE}{text}\n", encoding="utf-8")


def all_settings(*more: Path) -> list[Setting]:
    """Settings of the published tables, and of tables with other names in ``more`` folders."""
    paths: dict[str, Path] = {}
    for folder in (FOLDER, *more):
        for path in sorted(folder.glob("*.csv")):
            paths.setdefault(path.stem, path)
    counted = [path for name, path in paths.items() if name not in NOT_COUNTED]
    return [one for path in counted for one in settings_of(path)]


def settings_of(path: Path) -> list[Setting]:
    """Timed settings of a file that are predicted, repeats merged by their median."""
    repeats: dict[tuple[object, ...], list[PublishedRow]] = {}
    for one in with_recompute(read_measurements(path).measurements):
        if one.step_time_s is not None:
            repeats.setdefault((one.settings, trainer_of(one)), []).append(one)
    rows = [same[0] for same in repeats.values()]
    runs, _ = runs_of(rows)
    seconds = predicted_s(runs, len(rows))
    measured = [
        np.median([one.step_time_s or np.nan for one in same]) for same in repeats.values()
    ]
    return [
        Setting(
            table=path.stem,
            traits=Traits.of(run.workload, run.machine.accelerator.name),
            error=float(abs(measured[i] / seconds[i] - 1.0)),
        )
        for run in runs
        for i in run.rows
    ]


def measured_groups(settings: Sequence[Setting]) -> tuple[MeasuredGroup, ...]:
    """Settings of equal traits in each table, with the error that nine of ten are within."""
    errors: dict[tuple[str, Traits], list[float]] = {}
    for one in settings:
        errors.setdefault((one.table, one.traits), []).append(one.error)
    return tuple(
        MeasuredGroup(
            table=table,
            traits=traits,
            settings=len(found),
            error=float(np.quantile(found, _COVERED)),
        )
        for (table, traits), found in errors.items()
    )


Excluded = Callable[[Traits, Traits], bool]
_HELD_OUT: tuple[tuple[str, Excluded], ...] = (
    ("all groups", lambda _mine, _other: False),
    ("by GPU", lambda mine, other: mine.architecture == other.architecture),
    ("by kind", lambda mine, other: mine.has_experts == other.has_experts),
)


def coverage_table(settings: Sequence[Setting], groups: Sequence[MeasuredGroup]) -> str:
    """Coverage in percent and the mean band of each table, and of all of them."""
    heads = " | ".join(f"{name}: within, band" for name, _ in _HELD_OUT)
    lines = [f"| table | settings | {heads} |", "|---|---|" + "---|" * len(_HELD_OUT)]
    bands = [np.array([_band(one, groups, out) for one in settings]) for _, out in _HELD_OUT]
    errors = np.array([one.error for one in settings])
    tables = np.array([one.table for one in settings])
    names = list(dict.fromkeys(tables.tolist()))
    weights = np.array([1.0 / np.sqrt((tables == one.table).sum()) for one in settings])
    for name in names:
        mine = tables == name
        lines.append(_line(name, [(errors[mine] <= one[mine], one[mine]) for one in bands]))
    kinds = np.array([one.traits.has_experts for one in settings])
    for name, mine in (("all dense", ~kinds), ("all with experts", kinds)):
        if mine.any():
            cells = [(errors[mine] <= one[mine], one[mine]) for one in bands]
            lines.append(_line(name, cells, weights[mine]))
    lines.append(_line("all tables", [(errors <= one, one) for one in bands], weights))
    return "\n".join(lines)


def shares_within(settings: Sequence[Setting]) -> dict[str, float]:
    """Shares of steps within their bands, for each way of leaving out; tables count by roots."""
    groups = measured_groups(settings)
    sizes = Counter(one.table for one in settings)
    weights = np.array([1.0 / np.sqrt(sizes[one.table]) for one in settings])
    return {
        name: float(
            np.average([one.error <= _band(one, groups, out) for one in settings], weights=weights)
        )
        for name, out in _HELD_OUT
    }


def _band(one: Setting, groups: Sequence[MeasuredGroup], is_out: Excluded) -> float:
    kept = [group for group in groups if not is_out(one.traits, group.traits)]
    return step_band(one.traits, kept).error


def _line(
    name: str,
    found: Sequence[tuple[Bools, Floats]],
    weights: Floats | None = None,
) -> str:
    cells = [
        f"{100 * np.average(within, weights=weights):.0f} %, ±{100 * band.mean():.0f} %"
        for within, band in found
    ]
    return f"| {name} | {len(found[0][0])} | {' | '.join(cells)} |"


def _source(one: MeasuredGroup) -> str:
    traits = one.traits
    kind = "EXPERTS" if traits.has_experts else "DENSE"
    return (
        f'    ("{one.table}", {kind}, Bits.{traits.bits.name}, "{traits.architecture}", '
        f"{one.settings}, {one.error:.3f}),"
    )


if __name__ == "__main__":
    main()
