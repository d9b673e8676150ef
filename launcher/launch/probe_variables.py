"""Injects the probe into an external script through the environment, and explains its silence.

Not: the probe (``runtime/probe.py``), which this layer knows by its files alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.core import PROBE_VARIABLE, SIGNS_FOLDER, RankTask, Sign, sign_path

INJECTED = Path(__file__).resolve().parents[2] / "runtime" / "injected"
_SEARCH_PATH = "PYTHONPATH"
_DEAF = {"I": "-I", "E": "-E", "S": "-S"}
"""Flags of Python with which PYTHONPATH or sitecustomize is not looked at."""


def probe_environment(task: RankTask, folder: Path) -> tuple[tuple[str, str], ...]:
    """Variables that make every Python of a launch arm the probe.

    Args:
        task: what the ranks are to measure.
        folder: the trial's, made here with room for the probe's signs; its path stands in the
            task from here on.
    """
    (folder / SIGNS_FOLDER).mkdir(parents=True, exist_ok=True)
    return (search_path(), (PROBE_VARIABLE, task.to_variable()))


def search_path() -> tuple[str, str]:
    """The variable by which every Python of a launch finds our code first."""
    set_by_user = os.environ.get(_SEARCH_PATH)
    before = set_by_user.split(os.pathsep) if set_by_user else []  # an empty one: where we are
    path = os.pathsep.join((str(INJECTED), *(e for e in before if e != str(INJECTED))))
    return _SEARCH_PATH, path


def deaf_flag(argv: Sequence[str]) -> str | None:
    """The flag in a command by which its Python ignores the probe: ``-I``, ``-E`` or ``-S``.

    Only what stands between the interpreter and the script is its flags.
    """
    if not argv or not Path(argv[0]).name.startswith(("python", "pypy")):
        return None
    words = iter(argv[1:])
    for word in words:
        if not re.fullmatch("-[A-Za-z].*", word):
            return None
        letters = re.match("-([A-Zabd-ln-z]*?)([cmWX].*)?$", word)
        alone, valued = (letters[1], letters[2]) if letters else ("", None)
        for letter in alone:
            if letter in _DEAF:
                return _DEAF[letter]
        if valued and valued[0] in "cm":
            return None
        if valued and len(valued) == 1:
            next(words, None)
    return None


def why_silent(task: RankTask) -> str:
    """Why no rank of a launch reported, by how far the probe came in any process."""
    broken = sign_path(task, Sign.BROKEN.value)
    if broken.exists():
        return f"the probe failed inside the script: {broken.read_text(errors='replace')}"
    if not sign_path(task, Sign.INJECTED.value).exists():
        return (
            "the probe was never started: the script's Python does not read PYTHONPATH "
            "(flags -I, -E or -S, or a wrapper that clears the environment); start it without"
        )
    if not sign_path(task, Sign.ARMED.value).exists():
        return "the probe was started, but no process of the script imported torch"
    return (
        "the probe was armed, but saw neither a step of a torch.optim.Optimizer nor a backward "
        "pass; only such steps can be measured"
    )
