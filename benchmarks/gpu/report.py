"""The results of ``measure.sh`` as a page: ``python benchmarks/gpu/report.py gpu_out``.

Writes ``benchmarks/results/gpu_NAME.md`` and the small raw files into a folder of that name. With
several folders, which are runs of the same GPU, the page has the parts of all of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.results.journal import JournalContents, read_journal

RESULTS = Path(__file__).parents[1] / "results"
MEMORY_GOAL, TIME_GOAL = 5.0, 10.0
"""Largest acceptable error of ``driver_error`` and ``time_error``, in percent."""
KEPT = ("env.txt", "predicted.csv", "one_gpu.json")
"""Raw files that are stored beside the page."""
_MISS = " **miss**"
_PART = re.compile(r"^== (?P<name>\w+) (?P<rest>ended with .*|skipped: .*)$", re.MULTILINE)
_TESTS = re.compile(
    r"^(?:FAILED .*|ERROR .*|[\d, a-z]*\d+ (?:passed|failed|error).*)$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Tune:
    """One tune of the run, by its journal."""

    name: str
    journal: JournalContents
    winner: str | None

    @property
    def launches(self) -> tuple[Record, ...]:
        """Every launch but the profile run."""
        journal = self.journal
        return (*journal.told, *journal.finals, *journal.soaks)


def page(folders: Sequence[Path]) -> str:
    """The whole page."""
    env, log, document = (
        _read(folders, name) for name in ("env.txt", "measure.log", "one_gpu.json")
    )
    tunes = [tune for folder in folders for tune in tunes_of(folder)]
    sections = [
        f"# {gpu_of(env)}\n\nMeasured by `benchmarks/gpu/measure.sh`, written by `benchmarks/gpu/"
        "report.py`. Raw numbers are in the folder of the same name.",
        "## The card\n```\n" + "\n".join(_facts(env)) + "\n```",
        *prediction_sections(_rows(_read(folders, "predicted.csv"))),
        *(one_gpu_section(json.loads(document)) if document else ()),
        *tune_sections(tunes),
        *compiled_section(folders),
        "## Parts of the run\n" + "\n".join(_parts(log)),
    ]
    return "\n\n".join(sections) + "\n"


def gpu_of(env: str) -> str:
    """The GPU's name in our tables, or the driver's name if it is not there."""
    facts: dict[str, str] = dict(re.findall(r"^(gpu|row of gpus.csv): (.*)$", env, re.MULTILINE))
    row = facts.get("row of gpus.csv", "none")
    return facts.get("gpu", "unknown GPU") if row == "none" else row


def _facts(env: str) -> Iterator[str]:
    """The lines that ``card.py`` printed."""
    lines = env.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("torch:")), len(lines))
    yield from (line for line in lines[start:] if not line.startswith("=="))


def prediction_sections(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """Predicted and measured memory and time, the misses named."""
    if not rows:
        return
    yield "\n".join(
        [
            "## Predicted beside measured",
            f"Goals: memory (reserved and context) within {MEMORY_GOAL:g} %, step time within "
            f"{TIME_GOAL:g} %. The step is the median of the timed ones.",
            "",
            *_table(
                ("configuration", "memory", "predicted", "error", "step", "predicted", "error"),
                (_prediction_cells(row) for row in rows),
            ),
        ]
    )
    groups = {"all": list(rows)}
    for row in rows:
        group = f"{row['model']} {row['precision']}, checkpointing {row['checkpointing']}"
        groups.setdefault(group, []).append(row)
    cells = ((name, *_error_cells(group)) for name, group in groups.items())
    header = ("group", "rows", "memory: mean", "worst", "step: mean", "worst")
    yield "\n".join(["Mean and worst absolute errors:", "", *_table(header, cells)])


def _prediction_cells(row: dict[str, str]) -> tuple[str, ...]:
    name = f"{row['model']} {row['precision']} micro {row['micro_batch']} of {row['global_batch']}"
    name += ", full recomputation" if row["checkpointing"] == "full" else ""
    if row["outcome"] != "measured":
        return (name, row["outcome"], _fit_verdict(row), "", "", "", "")
    false_alarm = f"does not fit{_MISS}" if row["predicted_fits"] == "no" else ""
    return (
        name,
        f"{_driver_gib(row):.2f} GiB" if row["reserved_gib"] else "",
        false_alarm or _with_unit(row["predicted_gib"], "GiB"),
        _judged(row["driver_error"], MEMORY_GOAL),
        _with_unit(row["step_s"], "s"),
        _with_unit(row["predicted_step_s"], "s"),
        _judged(row["time_error"], TIME_GOAL),
    )


def _fit_verdict(row: dict[str, str]) -> str:
    """The verdict of ``plan`` on a configuration that failed."""
    if row["outcome"] != "out of memory" or not row["predicted_fits"]:
        return ""
    return "does not fit" if row["predicted_fits"] == "no" else f"fits{_MISS}"


def _driver_gib(row: dict[str, str]) -> float:
    return float(row["reserved_gib"]) + float(row["context_gib"])


def _with_unit(number: str, unit: str) -> str:
    return f"{number} {unit}" if number else ""


def _judged(error: str, goal: float) -> str:
    """An error as a table shows it, marked if it misses the goal."""
    if not error:
        return ""
    return error.replace("%", " %") + (_MISS if abs(_percent(error)) > goal else "")


def _percent(error: str) -> float:
    return float(error.rstrip("%"))


def _error_cells(rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    cells = [str(len(rows))]
    for column, goal in (("driver_error", MEMORY_GOAL), ("time_error", TIME_GOAL)):
        errors = [abs(_percent(row[column])) for row in rows if row[column]]
        cells.append(_judged(f"{statistics.mean(errors):.1f}%", goal) if errors else "")
        cells.append(_judged(f"{max(errors):.1f}%", goal) if errors else "")
    return tuple(cells)


def one_gpu_section(document: dict[str, Any]) -> Iterator[str]:
    """The answers of ``one_gpu.py``."""
    tuner, hand, errors = document["tuner"] or {}, document["by_hand"], document["errors_percent"]
    trials = tuner.get("trials_until_close")
    rows = [
        ("trials until within 2 % of the best", "8", "never" if trials is None else str(trials)),
        ("winner behind the best", "2 %", _shown(tuner.get("behind_best_percent"), 2)),
        ("gain over tuning by hand", "-", _shown(document["gain_over_hand_percent"])),
        ("gain over the first micro-batch", "-", _shown(tuner.get("gain_over_untouched_percent"))),
        ("wall time of the tune", "-", f"{tuner.get('wall_s', 0):.0f} s"),
        ("wall time by hand", "-", _hand_time(hand)),
        (
            "memory error of `plan`",
            f"{MEMORY_GOAL:g} %",
            _shown(errors["plan_memory"], MEMORY_GOAL),
        ),
        (
            "memory error of the tuner",
            f"{MEMORY_GOAL:g} %",
            _shown(errors["tuner_memory"], MEMORY_GOAL),
        ),
        ("step error of `plan`", f"{TIME_GOAL:g} %", _shown(errors["plan_step"], TIME_GOAL)),
        ("step error of the tuner", f"{TIME_GOAL:g} %", _shown(errors["tuner_step"], TIME_GOAL)),
    ]
    yield "\n".join(
        [
            f"## The tuner beside tuning by hand: {document['model']}, bf16",
            f"{document['launched']} of {document['configurations']} configurations were launched "
            f"plainly; the best: {_configuration(document['best'])}. Chosen by the tuner: "
            f"{_configuration(tuner.get('choice'))}; by hand: {_configuration(hand['choice'])}.",
            "",
            *_table(("what", "goal", "measured"), rows),
        ]
    )


def _hand_time(hand: dict[str, Any]) -> str:
    cut = "" if hand["complete"] else ", cut short"
    return f"{hand['wall_s']:.0f} s, {hand['launches']} launches{cut}"


def _shown(percent: float | None, goal: float | None = None) -> str:
    if percent is None:
        return "not measured"
    return f"{percent:.1f} %" + (_MISS if goal is not None and percent > goal else "")


def _configuration(cells: dict[str, Any] | None) -> str:
    if not cells:
        return "none"
    return f"micro-batch {cells['micro_batch']}, checkpointing {cells['checkpointing']}"


def tunes_of(folder: Path) -> Iterator[Tune]:
    """The tunes in a run's archive."""
    if not (folder / "raw.tgz").exists():
        return
    with tempfile.TemporaryDirectory() as name, tarfile.open(folder / "raw.tgz") as archive:
        archive.extractall(name, filter="data")
        for journal in sorted(Path(name).rglob("journal.jsonl")):
            summary = journal.with_name("summary.json")
            document = json.loads(summary.read_text()) if summary.exists() else {}
            part = journal.relative_to(name).parts[0]
            yield Tune(name=part, journal=read_journal(journal), winner=document.get("winner"))


def tune_sections(tunes: Sequence[Tune]) -> Iterator[str]:
    """Launches, failures and prediction errors of each tune."""
    if not tunes:
        return
    header = (
        "tune",
        "launches",
        "out of memory",
        "other failures",
        "winner",
        "memory error",
        "step error",
    )
    yield "\n".join(["## Tunes", *_table(header, map(_tune_cells, tunes))])
    for tune in tunes:
        if tune.name == "noise":
            yield noise_text(tune.journal.records)


def _tune_cells(tune: Tune) -> tuple[str, ...]:
    failures = [record for record in tune.launches if record.failure]
    memory = [r for r in failures if _kind(r) is FailureKind.OUT_OF_MEMORY]
    repeated = len(memory) - len({record.trial.name for record in memory})
    others = sorted({_kind(record).value for record in failures if record not in memory})
    return (
        tune.name,
        str(len(tune.launches)),
        f"{len(memory)}" + (f", {repeated} of them again{_MISS}" if repeated else ""),
        ", ".join(others) or "none",
        tune.winner or "none",
        _mean_error(tune.journal.records, "peak_bytes", MEMORY_GOAL),
        _mean_error(tune.journal.records, "step_s", TIME_GOAL),
    )


def _kind(record: Record) -> FailureKind:
    assert record.failure
    return record.failure.kind


def _mean_error(records: Iterable[Record], name: str, goal: float) -> str:
    """Mean absolute error of the tuner's own predictions, in percent."""
    errors = []
    for record in records:
        prediction, measured = record.prediction, record.measurement
        if prediction is None or measured is None:
            continue
        memory = measured.memory.peak_bytes if measured.memory else None
        truth = memory if name == "peak_bytes" else measured.mean_step_s
        if truth and getattr(prediction, name):
            errors.append(abs(getattr(prediction, name) / truth - 1.0))
    return _judged(f"{100 * statistics.mean(errors):.1f}%", goal) if errors else ""


def noise_text(records: Sequence[Record]) -> str:
    """How much launches of one configuration differ."""
    times = [record.measurement.mean_step_s for record in records if record.measurement]
    if len(times) < 2:
        return "Noise between launches: not measured."
    mean_s = statistics.mean(times)
    return (
        f"Noise between {len(times)} launches of one configuration: standard deviation "
        f"{100 * statistics.stdev(times) / mean_s:.2f} %, range "
        f"{100 * (max(times) - min(times)) / mean_s:.1f} % of {1e3 * mean_s:.1f} ms."
    )


def compiled_section(folders: Sequence[Path]) -> Iterator[str]:
    """A configuration with and without ``torch.compile``."""
    for folder in folders:
        if not (folder / "raw.tgz").exists():
            continue
        with tarfile.open(folder / "raw.tgz") as archive:
            name = next((n for n in archive.getnames() if n.endswith("compiled.csv")), None)
            file = archive.extractfile(name) if name else None
            rows = _rows(file.read().decode()) if file else []
        if rows:
            columns = (
                "compiled",
                "outcome",
                "first_step_s",
                "step_s",
                "predicted_step_s",
                "reserved_gib",
            )
            cells = (tuple(row[column] for column in columns) for row in rows)
            yield "\n".join(["## torch.compile", *_table(columns, cells)])


def _parts(log: str) -> list[str]:
    """The duration of each part, and the failed tests."""
    rows = [(match["name"], match["rest"]) for match in _PART.finditer(log)]
    tests = [match.group() for match in _TESTS.finditer(log)]
    text = _table(("part", "end"), rows)
    return [*text, "", "Tests on the GPU:", "```", *tests, "```"] if tests else text


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def _read(folders: Sequence[Path], name: str) -> str:
    """The text of a raw file: logs and rows of all folders, else of the last that has the file."""
    texts = [(folder / name).read_text() for folder in folders if (folder / name).exists()]
    if name.endswith(".csv"):
        return "".join(texts[:1] + [text.partition("\n")[2] for text in texts[1:]])
    return "\n".join(texts) if name.endswith(".log") else "".join(texts[-1:])


def store(folders: Sequence[Path], results: Path) -> Path:
    """Write the page and copy the small raw files; returns the page's path."""
    text = page(folders)
    slug = re.sub(r"\W+", "_", gpu_of(_read(folders, "env.txt")).lower())
    path, raw = results / f"gpu_{slug}.md", results / f"gpu_{slug}"
    raw.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for name in KEPT:
        if kept := _read(folders, name):
            (raw / name).write_text(kept)
    return path


def main() -> None:
    """Write the page of the given folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="results of measure.sh")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the page is written")
    options = parser.parse_args()
    print(store(options.folders, options.results))


if __name__ == "__main__":
    main()
