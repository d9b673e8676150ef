"""Damaged inputs by the thousand: each ends with one short line, or is a valid run."""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from autoconf_launch.core import visible
from autoconf_launch.launcher import cli
from autoconf_launch.launcher.commands import tune
from autoconf_launch.launcher.results import ResultsPaths, open_folder
from autoconf_launch.launcher.tuning import open_space, read_job

from ..launcher.controlled import PRINT, run_study, space
from .inputs import Case, Kind

LONGEST_LINE, HANG_S = 400, 60
SHARED_S = 8.0
USAGE, LAUNCHED, VALID = 2, 3, (0, 1)
"""3: the input is valid, and the script that it belongs to was launched, which fails."""
ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """The outcome of a command; ``broke`` is a traceback without a sentence."""

    code: int
    said: str
    printed: str
    wall_s: float
    """On a free core: a shared machine may take longer."""
    broke: str = ""


@dataclass(frozen=True)
class Miss:
    """A case that broke a promise; ``kind`` and ``index`` make it again under the same seed."""

    kind: str
    index: int
    why: str
    argv: tuple[str, ...]
    said: str

    def __str__(self) -> str:
        return f"{self.kind} {self.index}: {self.why}\n  {self.argv}\n  {self.said[-1500:]}"


def why_missed(case: Case, ended: Ended) -> str:
    """The promise that was broken; "" where none was."""
    if ended.broke:
        return f"traceback: {ended.broke.strip().splitlines()[-1]}"
    if found := ESCAPES.search(ended.said + ended.printed):
        return f"control character {found[0]!r} was printed"
    if ended.code == LAUNCHED:
        return ""
    if ended.wall_s > case.longest_s:
        return f"took {ended.wall_s:.1f} s"
    if ended.code in VALID:
        return ""
    return _why_bad(case, ended) if ended.code == USAGE else f"exit code {ended.code}"


def _why_bad(case: Case, ended: Ended) -> str:
    first, *others = [line for line in ended.said.splitlines() if not _is_note(line)] or [""]
    keys = (*case.keys, "line ") if case.keys else ()  # of a text that is malformed
    if others:
        return f"{1 + len(others)} lines"
    if len(first) >= LONGEST_LINE:
        return f"a line of {len(first)} characters"
    if any(f": {word} " in first for word in case.instead):
        return ""
    if case.file not in first:
        return "does not name the file"
    if keys and not any(visible(key[:40]) in first for key in keys if key):
        return "names no key"
    return ""


def _is_note(line: str) -> bool:
    """Text besides an answer, about a valid part of the input."""
    return not line.startswith("autoconf-launch: ") or line.startswith("autoconf-launch: warning")


class _Clock:
    """Time of this process and its children, and what they waited beyond a share of it."""

    def __init__(self) -> None:
        self._busy_s, self._start_s, self._queued_s = _busy_s(), time.perf_counter(), _queued_s()

    def spent_s(self, child_queued_s: float = 0.0) -> float:
        """A wait counts that is neither for a core nor explained by a shared disk."""
        busy_s = _busy_s() - self._busy_s
        queued_s = _queued_s() - self._queued_s + child_queued_s
        waited_s = time.perf_counter() - self._start_s - busy_s - queued_s
        return busy_s + max(0.0, waited_s - SHARED_S)


def _queued_s(pid: int | str = "self") -> float:
    """Seconds in which a process waited for a core; 0 if the kernel does not count them."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _busy_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def run_here(case: Case, folder: Path) -> Ended:
    """Run the command in this process."""
    lines: list[str] = []
    printed, broke, code = io.StringIO(), "", 0
    clock = _Clock()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(cli, "_write_line", lines.append)
        patch.setattr(tune, "run_tune", _read_only)
        patch.chdir(folder)
        try:
            with _no_hang():
                code = _resume(case.argv[1]) if case.argv[0] == "resume" else cli.main(case.argv)
        except BaseException:
            broke = traceback.format_exc()
    said = "\n".join(map(visible, lines))
    return Ended(code, said, printed.getvalue(), clock.spent_s(), broke)


def _read_only(request: Any, listener: Any, began_s: float) -> int:
    """All that a tune reads before it launches anything."""
    read_job(request, listener)
    return 0


def _resume(results: str) -> int:
    """Go on from a journal with a study whose launches are replayed."""

    def go_on() -> int:
        paths = ResultsPaths(results=Path(results), exps=Path(results).with_name("exps"))
        searched = space(2)
        with open_folder(paths, PRINT, fresh=False) as folder:
            contents = open_space(folder, searched, lambda event: None)
            run_study(searched, folder.journal, contents=contents)
        return 0

    return cli._exit_code_of(go_on)


@contextlib.contextmanager
def _no_hang() -> Iterator[None]:
    """End a case that waits for something."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"nothing happened for {HANG_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_command(case: Case, folder: Path) -> Ended:
    """Run the real command."""
    clock = _Clock()
    command = (sys.executable, "-m", "autoconf_launch", *case.argv)
    printed, said = folder / ".printed", folder / ".said"
    with printed.open("wb") as out, said.open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)
    try:
        with _no_hang():
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except TimeoutError:
        process.kill()
    queued_s = _queued_s(process.pid)
    code = process.wait()
    texts = [path.read_text(errors="replace") for path in (printed, said)]
    broke = texts[1] if "\nTraceback" in f"\n{texts[1]}" else ""
    return Ended(code, texts[1], texts[0], clock.spent_s(queued_s), broke)


def miss_of(kind: Kind, seed: str, index: int, *, by_command: bool = False) -> Miss | None:
    """Make one case and see what its command does; a slow one is run twice."""
    run = run_command if by_command else run_here
    for attempt in (1, 2):
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            case = kind.make(Random(f"{seed} {kind.name} {index}"), folder)
            ended = run(case, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        why = why_missed(case, ended)
        if not why.startswith("took") or attempt == 2:
            break
    return Miss(kind.name, index, why, case.argv, ended.said + ended.broke) if why else None


def misses_of(kind: Kind, seed: str, numbers: Sequence[int], by_command: bool) -> list[Miss]:
    found = (miss_of(kind, seed, number, by_command=by_command) for number in numbers)
    return [miss for miss in found if miss]
