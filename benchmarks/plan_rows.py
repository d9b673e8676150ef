"""Random layouts that ``plan --runnable`` ranks on 8 ranks, written out and trained as they are.

Each row is written by ``plan --export native --row N`` and trains a small Mixtral for two steps on
CPU ranks over gloo; the layout that the ranks find on their live model must equal the row, and the
losses must equal the other rows'. Writes ``results/plan_rows.md``; ends with code 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from plan_rows.ranks import GLOBAL_BATCH, MODEL, TOKENS, Run, train

from autoconf_launch.core import Candidate, RankResult, RawConfig, resolve
from autoconf_launch.launcher.launch.outcome import mismatch
from autoconf_launch.launcher.report import label

RANKS = 8
RESULT = Path(__file__).parent / "results" / "plan_rows.md"
TOLERANCE = 1e-4
PLAN = (
    *(sys.executable, "-m", "autoconf_launch.launcher.cli", "plan", "--model", str(MODEL)),
    *("--cluster", f"{RANKS}xH100", "--seq", str(TOKENS), "--global-batch", str(GLOBAL_BATCH)),
    *("--precision", "fp32", "--runnable", "--top", "0", "--json"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the plan and how it trained."""

    number: int
    asked: Candidate
    runs: tuple[Run, ...]

    @property
    def problem(self) -> str:
        """The reason why it did not run as requested; "" if it did."""
        errors = [run.error.strip().splitlines()[-1] for run in self.runs if run.error]
        own = [error for error in errors if "onnection" not in error]  # others saw a peer end
        if errors:
            return (own or errors)[0]
        found = (_otherwise(run, self.asked) for run in self.runs)
        return next((text for text in found if text), "")

    @property
    def losses(self) -> tuple[float, ...]:
        """Losses of the first rank."""
        return self.runs[0].losses


def main() -> int:
    """Plan, choose, train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rows", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    count = len(plan()["best"])
    numbers = random.Random(args.seed).sample(range(1, count + 1), args.rows)
    print(f"seed {args.seed}: {args.rows} of {count} rows that run here", flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in sorted(numbers):
            rows.append(train_row(number, Path(folder)))
            print(_line(rows[-1], rows), flush=True)
    failed = [row for row in rows if row.problem or not _agrees(row, rows)]
    RESULT.write_text("\n".join((*_head(args.seed, count, rows, failed), *_table(rows))) + "\n")
    return 1 if failed else 0


def plan(*flags: str) -> dict[str, Any]:
    """The document of the command."""
    text = subprocess.run((*PLAN, *flags), check=True, capture_output=True, text=True).stdout
    document: dict[str, Any] = json.loads(text)
    return document


def train_row(number: int, folder: Path) -> Row:
    """Write a row out and train it."""
    plan("--export", "native", "--row", str(number), "-o", str(folder))
    path = folder / "layout.native.json"
    asked = resolve(RawConfig(json.loads(path.read_text())), world_size=RANKS)
    candidate = Candidate(layout=asked.layout, extras=asked.extras)
    return Row(number=number, asked=candidate, runs=train(path, RANKS))


def _otherwise(run: Run, asked: Candidate) -> str:
    result = RankResult(
        rank=0, world_size=RANKS, attempt="", ended_unix_s=time.time(), applied=run.applied
    )
    failure = mismatch(result, asked, None)
    return "" if failure is None else failure.detail


def _agrees(row: Row, rows: list[Row]) -> bool:
    """True if its losses equal the losses of the first row that trained."""
    first = next((one.losses for one in rows if one.losses), ())
    return all(abs(a - b) <= TOLERANCE for a, b in zip(row.losses, first, strict=True))


def _line(row: Row, rows: list[Row]) -> str:
    losses = " ".join(f"{loss:.6f}" for loss in row.losses) or "-"
    verdict = row.problem or ("as asked" if _agrees(row, rows) else "**other losses**")
    return f"| {row.number} | {label(row.asked)} | {losses} | {verdict} |"


def _head(seed: int, count: int, rows: list[Row], failed: list[Row]) -> tuple[str, ...]:
    return (
        "# Rows of a plan, trained as they are",
        "",
        f"Written by `python benchmarks/plan_rows.py --seed {seed}`: {len(rows)} random rows of",
        f"the {count} that `plan --runnable --top 0` ranks for a small Mixtral on {RANKS} ranks,",
        "each written by `--export native --row N` and trained for two steps on CPU ranks, gloo.",
        "What the ranks find on their live model must be what the file asks for, and the losses",
        f"those of the first row within {TOLERANCE:g}. torch {torch.__version__}, transformers",
        f"{transformers.__version__}. **{len(rows) - len(failed)} of {len(rows)} ran as asked.**",
        "",
    )


def _table(rows: list[Row]) -> tuple[str, ...]:
    header = ("| row | layout | losses | |", "|---|---|---|---|")
    return (*header, *(_line(row, rows) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
