"""A run of a verb: its exit code, its text, its document."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
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
    def is_one_line(self) -> bool:
        """True if it ended with one sentence and nothing else."""
        return self.err.count("\n") == 1 and not self.out and "Traceback" not in self.err


Run: TypeAlias = Callable[..., Ran]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run the command in this process."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return Ran(code=code, out=captured.out, err=captured.err)


def with_value(words: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """A command line with another value of a flag."""
    place = words.index(flag)
    return (*words[: place + 1], value, *words[place + 2 :])
