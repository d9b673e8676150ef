"""One GPU: hand-tuning, every configuration and the untouched script beside the tuner.

Micro-batch x checkpointing x compile x precision of ``train.py``, for GPT-2 large and a Llama of
1.2 B parameters. The whole space is measured by the real command (``--tuner-type=gridsearch``),
then the tuner runs live. Both stop after their minutes, and the same command goes on from there.
Not for several GPUs.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoconf_launch import ConfigError, plan
from autoconf_launch.autotuner.space.trial import Record
from autoconf_launch.core import Layout, Offload
from autoconf_launch.launcher.results.journal import read_journal

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from real_cpu import EVERYTHING, Tuned, judge, run_tune  # noqa: E402

SCRIPT = HERE / "train.py"
TOKENS = {"gpt2-large": 1024, "llama3.2-1b": 2048}
KNOBS = {"--checkpointing": ["none", "full"], "--compile": [0, 1], "--precision": ["fp32", "bf16"]}
_COLUMNS = (
    "name",
    "micro_batch",
    "checkpointing",
    "compile",
    "precision",
    "step_s",
    "peak_bytes",
    "predicted_step_s",
    "predicted_peak_bytes",
    "failure",
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is measured, on what, for how long."""

    model: str
    gpu: str | None
    global_batch: int
    minutes: float
    folder: Path

    def words(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The launch, as a user writes it; the script starts from micro-batch 1."""
        knobs = [f"--knob={name}={json.dumps(values)}" for name, values in KNOBS.items()]
        own = f"--model={self.model} --batch_size=1 --accumulation={self.global_batch}".split()
        accumulation = "--arg=gradient_accumulation_steps=--accumulation"
        limits = (f"--budget={self.minutes:g}m", "--max-parallel-trials=1")
        return ("--num_gpus=1", accumulation, *knobs, *limits, *flags, str(SCRIPT), *own)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration: measured, or why not; predicted where the GPU is in our data."""

    record: Record
    predicted_step_s: float | None = None
    predicted_peak_bytes: float | None = None

    @property
    def knobs(self) -> dict[str, Any]:
        """Its values by the names of the table."""
        candidate = self.record.trial.candidate
        extras = {name.lstrip("-"): value for name, value in candidate.extras}
        return {"micro_batch": candidate.layout.micro_batch, **extras}

    @property
    def step_s(self) -> float | None:
        """Measured."""
        return self.record.measurement.mean_step_s if self.record.measurement else None

    @property
    def peak_bytes(self) -> int | None:
        """Measured; of a failure, what was seen before it."""
        memory = self.record.outcome.memory
        return memory.peak_bytes if memory else None

    def cells(self) -> dict[str, Any]:
        """A row of the table that is kept."""
        failure = self.record.failure
        return {
            **self.knobs,
            "name": self.record.trial.name,
            "step_s": self.step_s,
            "peak_bytes": self.peak_bytes,
            "predicted_step_s": self.predicted_step_s,
            "predicted_peak_bytes": self.predicted_peak_bytes,
            "failure": failure.kind.value if failure else None,
        }


def measure_all(asked: Asked) -> Tuned:
    """Every configuration once, as far as the minutes go."""
    folder = asked.folder / "everything"
    folder.mkdir(parents=True, exist_ok=True)
    return run_tune(folder, asked.words(EVERYTHING))


def rows_of(records: Sequence[Record], asked: Asked) -> tuple[Row, ...]:
    """What was measured beside what ``plan`` says of the same model and GPU."""
    return tuple(_predict(Row(record=record), asked) for record in records)


def _predict(row: Row, asked: Asked) -> Row:
    if asked.gpu is None or asked.model not in TOKENS:
        return row
    knobs, layout = row.knobs, row.record.trial.candidate.layout
    answer = plan(
        model=asked.model,
        cluster=f"1x{asked.gpu}",
        seq=TOKENS[asked.model],
        global_batch=asked.global_batch,
        precision=knobs["precision"],
        compile=bool(knobs["compile"]) or None,
        trainer="native",
        top=None,
    )
    for one in answer.plan.best:
        if _is_same(one.layout, layout.micro_batch, knobs["checkpointing"]):
            return Row(
                record=row.record,
                predicted_step_s=one.step_s,
                predicted_peak_bytes=one.peak_bytes,
            )
    return row


def _is_same(layout: Layout, micro_batch: int, checkpointing: str) -> bool:
    plain = layout.zero_stage == 0 and layout.offload is Offload.NONE
    same = (layout.micro_batch, layout.recompute.value) == (micro_batch, checkpointing)
    return plain and same


def by_hand(rows: Sequence[Row]) -> dict[str, Any]:
    """Raise the micro-batch until memory ends, all else as it was; what people do."""
    untouched = next(row for row in rows if row.record.trial.number == 0)
    others = {name: value for name, value in untouched.knobs.items() if name != "micro_batch"}
    steps = sorted(
        (row for row in rows if others.items() <= row.knobs.items()),
        key=lambda row: row.knobs["micro_batch"],
    )
    tried: list[Row] = []
    for row in steps:
        tried.append(row)
        if row.step_s is None:
            break
    best = min((row for row in tried if row.step_s), key=lambda row: row.step_s or 0.0)
    return {
        "choice": best.record.trial.name,
        "step_s": best.step_s,
        "trials": len(tried),
        "wall_s": sum(row.record.wall_s for row in tried),
    }


def errors(rows: Sequence[Row]) -> dict[str, float | None]:
    """Mean absolute error of what was predicted, percent."""
    times = [(r.predicted_step_s, r.step_s) for r in rows if r.predicted_step_s and r.step_s]
    peaks = [
        (r.predicted_peak_bytes, r.peak_bytes) for r in rows if r.predicted_peak_bytes and r.step_s
    ]
    return {"step_percent": _error(times), "memory_percent": _error(peaks)}


def _error(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [abs(said / seen - 1.0) for said, seen in pairs if said and seen]
    return 100 * sum(known) / len(known) if known else None


def report(asked: Asked) -> dict[str, Any]:
    """Measure, tune, compare.

    Raises:
        ConfigError: the GPU is not one that our data knows.
    """
    everything = measure_all(asked)
    records = read_journal(everything.journal).records
    rows = rows_of(records, asked)
    _keep(rows, asked.folder / f"{asked.model}.csv")
    truth = {row.record.trial.name: row.step_s for row in rows if row.step_s}
    truth = dict(sorted(truth.items(), key=lambda pair: pair[1]))
    folder = asked.folder / "live"
    folder.mkdir(parents=True, exist_ok=True)
    live = run_tune(folder, asked.words(()))
    untouched = next(row for row in rows if row.record.trial.number == 0)
    return {
        "model": asked.model,
        "gpu": asked.gpu,
        "global_batch": asked.global_batch,
        "configurations": len(rows),
        "stop": everything.summary["stop"],
        "step_s": truth,
        "untouched_step_s": untouched.step_s,
        "by_hand": by_hand(rows),
        "live": judge(live, truth),
        "errors": errors(rows),
    }


def _keep(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(row.cells() for row in rows)


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=(*TOKENS, "tiny"), default="gpt2-large")
    parser.add_argument(
        "--gpu", help="its name in our data, such as H200-SXM-141GB; for predictions"
    )
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=15, help="of each of the two parts")
    parser.add_argument("--folder", type=Path, default=Path("build/one_gpu"))
    options = parser.parse_args()
    asked = Asked(
        model=options.model,
        gpu=options.gpu,
        global_batch=options.global_batch,
        minutes=options.minutes,
        folder=(options.folder / options.model).resolve(),
    )
    try:
        document = report(asked)
    except ConfigError as error:
        parser.error(str(error))
    text = json.dumps(document, indent=2)
    (asked.folder / "report.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
