"""A run of a verb: its exit code, its text, its document."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from autoconf_launch.launcher.cli import main


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def best(self) -> list[dict[str, Any]]:
        """The rows of a plan's document."""
        rows: list[dict[str, Any]] = self.document["best"]
        return rows

    @property
    def is_one_line(self) -> bool:
        """True if it ended with one sentence and nothing else."""
        return self.err.count("\n") == 1 and not self.out and "Traceback" not in self.err


Run: TypeAlias = Callable[..., Ran]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run the command in this process."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return Ran(code=code, out=captured.out, err=captured.err)


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def flags_of(layout: dict[str, Any]) -> tuple[str, ...]:
    """Flags of fit for a layout of a plan's document."""
    names = {
        "tp": "tensor_parallel",
        "pp": "pipeline_parallel",
        "vpp": "virtual_pipeline",
        "cp": "context_parallel",
        "zero": "zero_stage",
        "recompute": "recompute",
        "offload": "offload",
    }
    words = [word for flag, name in names.items() for word in (f"--{flag}", str(layout[name]))]
    words.append(f"--{'' if layout['sequence_parallel'] else 'no-'}sequence-parallel")
    for name in ("recompute_layers", "pipeline_split", "micro_batch_split", "placement"):
        if value := layout[name]:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{name.replace('_', '-')}", text]
    if not layout["micro_batch_split"]:
        words += ["--micro-batch", str(layout["micro_batch"])]
    return tuple(words)


def with_value(words: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """A command line with another value of a flag."""
    place = words.index(flag)
    return (*words[: place + 1], value, *words[place + 2 :])
