"""``python -m tests.campaign [PART ...] [--seed S] [--share F]``: the table of promises kept."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from autoconf_launch.core import visible

from .faults import around_a_tune, in_candidates
from .fuzz import misses_of
from .inputs import BY_COMMAND, KINDS, Kind
from .kills import run_story

WORKERS, CHUNK = 2, 20


@dataclass(frozen=True)
class Row:
    """A fault in one thing, and the promises that it broke."""

    part: str
    what: str
    cases: int
    misses: tuple[str, ...]
    wall_s: float
    became: str = ""

    def __str__(self) -> str:
        broken = len(self.misses) or "none"
        line = f"{self.part:8} {self.what:36} {self.cases:6} {broken:>6} {self.wall_s:7.1f} s"
        return f"{line}  {self.became}".rstrip()


def fuzz(seed: str, share: float) -> Iterator[Row]:
    """Damaged inputs of every kind."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for kind in KINDS:
            yield _fuzz_row(pool, kind, seed, max(1, round(kind.count * share)), False)
        yield _fuzz_row(pool, KINDS[0], seed, max(1, round(BY_COMMAND * share)), True)


def _fuzz_row(
    pool: ProcessPoolExecutor, kind: Kind, seed: str, count: int, by_command: bool
) -> Row:
    start_s = time.monotonic()
    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    jobs = [pool.submit(misses_of, kind, seed, chunk, by_command) for chunk in chunks]
    found = tuple(str(miss) for job in jobs for miss in job.result())
    name = f"{kind.name}{', by the command' if by_command else ''}"
    return Row("fuzz", name, count, found, time.monotonic() - start_s)


def faults(seed: str, share: float) -> Iterator[Row]:
    """Faults of a script, a disk and a clock in a tune, each with its outcome."""
    for fault in chain(in_candidates(), around_a_tune()):
        said = f"{fault.became}: {visible(fault.says)[:90]}".rstrip(": ")
        yield Row("faults", fault.name, 1, fault.misses, fault.wall_s, said)


def kills(seed: str, share: float) -> Iterator[Row]:
    """Studies that are killed five times each."""
    count = max(1, round(STORIES * share))
    start_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kills-") as folder,
        ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool,
    ):
        folders = [Path(folder, str(number)) for number in range(count)]
        for path in folders:
            path.mkdir()
        jobs = [
            pool.submit(run_story, seed, number, KILLS, path)
            for number, path in enumerate(folders)
        ]
        for number, job in enumerate(jobs):
            story = job.result()
            wall_s = time.monotonic() - start_s
            killed = ", ".join(story.kills)
            yield Row("kills", f"study {number}", KILLS, tuple(story.misses), wall_s, killed)


STORIES, KILLS = 10, 5
PARTS: dict[str, Callable[[str, float], Iterator[Row]]] = {
    "fuzz": fuzz,
    "faults": faults,
    "kills": kills,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all of them")
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    flags = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and tunes inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    print(f"seed {flags.seed}\n{'part':8} {'what':36} {'cases':>6} {'broken':>6} {'took':>9}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it was over"))
    misses: list[str] = []
    try:
        for part in flags.parts or PARTS:
            for row in PARTS[part](flags.seed, flags.share):
                print(row, flush=True)
                misses += row.misses
    finally:
        for miss in misses:
            print(f"\n{miss}", flush=True)
    return bool(misses)


if __name__ == "__main__":
    sys.exit(main())
