"""Layouts against one process: five AdamW steps with clipping, on CPU ranks over gloo.

Writes ``results/parallel_losses.md``; ends with code 1 if a row differs by more than it may, or
did not run as requested. ``--rows TEXT`` runs rows whose name or model has the text, unwritten.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import transformers
from parallel_rows.models import one_process
from parallel_rows.rows import (
    ALL,
    LOSS,
    NORM,
    ROUNDED,
    Difference,
    Row,
    difference,
)

from autoconf_launch.launcher.machine import free_port

RANK = Path(__file__).parent / "parallel_rows" / "train.py"
RESULT = Path(__file__).parent / "results" / "parallel_losses.md"
HEAD = ("layout", "model", "ranks", "losses differ by", "norms by", "")


def main() -> int:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", metavar="TEXT")
    text = parser.parse_args().rows
    torch.set_num_threads(1)
    rows = [r for r in ALL if text in f"{r.name} {r.model}"]
    found: list[tuple[Row, Difference]] = []
    for ranks, group in groupby(rows, lambda row: row.ranks):
        same = list(group)
        found += zip(same, run(same, ranks), strict=True)
    lines = table(found)
    print("\n".join(lines))
    if not text:
        RESULT.write_text("\n".join((*head(found), *lines)) + "\n")
    return 0 if all(one.within(row) and one.ran_as(row) for row, one in found) else 1


def run(rows: list[Row], ranks: int) -> list[Difference]:
    """All rows of one number of ranks, in one launch."""
    port = str(free_port())
    alone = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, str(RANK), json.dumps([row.case for row in rows])]
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env={**os.environ, **alone, "RANK": str(rank), "LOCAL_RANK": "0"},
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"A rank of {ranks} failed; its error stands above.")
    answers = json.loads(outputs[0])
    references = [reference(row.model, row.precision) for row in rows]
    return [difference(*pair) for pair in zip(answers, references, strict=True)]


@cache
def reference(model: str, precision: str) -> dict[str, Any]:
    """Steps of one process; each model and precision once."""
    steps: dict[str, Any] = one_process(model, precision)
    return steps


def head(found: list[tuple[Row, Difference]]) -> tuple[str, ...]:
    """Text above the table, with its worst rows."""
    exact = [one for row, one in found if row.precision == "fp32"]
    return (
        "# Layouts against one process",
        "",
        "Written by `make test-parallel` (`benchmarks/parallel_losses.py`). Five steps of AdamW",
        "with clipping on the same global batches of 8: the largest difference of a loss, and of",
        "the gradient norm relative to it, from a plain torch loop in one process. fp32 may",
        f"differ by {LOSS:g} and {NORM:g}, bf16 (against bf16 of one process) by {ROUNDED:g}.",
        f"torch {torch.__version__}, transformers {transformers.__version__}, CPU ranks, gloo.",
        f"Worst of {len(exact)} rows in fp32: {max(e.loss for e in exact):.1e} and "
        f"{max(e.norm for e in exact):.1e}.",
        "`own` is a decoder of three blocks with an attribute `tensor_plan`; `own_tied` shares",
        "its embedding with its head and splits both, `own_placed` has learned positions, which",
        "its `position_ids` choose, `own_deep` is `own_tied` with four blocks, `own_experts` has",
        "experts of transformers' signature; the others are built by transformers from their",
        "configurations, with random weights.",
        "",
    )


def table(found: list[tuple[Row, Difference]]) -> list[str]:
    """Lines of Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for row, one in found:
        verdict = "ok" if one.within(row) else "**differs**"
        verdict = verdict if one.ran_as(row) else "**ran otherwise**"
        figures = (str(row.ranks), f"{one.loss:.1e}", f"{one.norm:.1e}")
        cells = (row.name, row.model, *figures, verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
