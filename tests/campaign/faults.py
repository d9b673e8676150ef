"""A user's script that does its worst in one candidate: what becomes of the tune, and how soon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..end_to_end.conftest import COMMAND, Place

SCRIPT = Path(__file__).parent / "scripts" / "worst.py"
LEAST_TIMEOUT_S, LEAST_STALL_S, SPARE_S = 14.0, 4.0, 9.0
IMPORTS_S = 3.0
"""What a rank's imports take at most where these limits are enough; longer ones lengthen them."""


@cache
def slowness() -> float:
    """Slowdown of a rank's imports against a machine without other work."""
    start_s = time.monotonic()
    code = "import torch, torch.distributed, autoconf_launch.runtime"
    subprocess.run([sys.executable, "-c", code], check=True)
    return max(1.0, (time.monotonic() - start_s) / IMPORTS_S)


def tune_flags(*more: str) -> tuple[str, ...]:
    return (
        *("--autotuning=tune", "--num_gpus=2", "--allow-global-batch-change", "--good-enough=0%"),
        *(f"--stall-timeout={slowness() * LEAST_STALL_S:.0f}", "--soak-steps=0", *more),
        *("--max-parallel-trials=1", "--no-history", str(SCRIPT), "--config=config.json"),
    )


MEASURED = "measured"
FAULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "raises in import": (("crashed",), "no module of that kind"),
    "raises in step 3": (("crashed",), "step 3 is cursed"),
    "hangs before its steps": (("timed_out", "stalled", "no_steps"), ""),
    "hangs in import": (("timed_out", "stalled", "no_steps"), ""),
    "hangs in a collective": (("stalled",), "then none for"),
    "hangs at exit": ((MEASURED, "timed_out", "stalled"), ""),
    "exits with 0 at once": (("no_steps",), ""),
    "killed by SIGKILL": (("crashed",), "SIGKILL"),
    "loss is NaN": (("nan",), "is nan"),
    "port taken": (("crashed",), "in use"),
    "a grandchild stays": ((MEASURED,), ""),
    "double-forked daemon": ((MEASURED,), ""),
    "closed stdout": ((MEASURED,), ""),
    "300 MB of binary output": ((MEASURED,), ""),
    "deaf to TERM, hangs": (("timed_out", "stalled"), ""),
    "200 deaf children": ((MEASURED, "crashed"), ""),
    "chdir to /": ((MEASURED,), ""),
    "all descriptors used": (("crashed", MEASURED), ""),
    "out of threads": (("crashed",), "thread"),
    "stopped by SIGSTOP": (("timed_out", "stalled"), ""),
    "surrogates in its error": (("crashed",), "\\udc80"),
    "escapes in its error": (("crashed",), "red"),
    "5 MB in one message": (("crashed",), "xxx"),
    "wrong CUDA_VISIBLE_DEVICES": ((MEASURED,), ""),
    "out of memory": (("out_of_memory",), "allocate"),
}
"""What may become of each in a candidate, and what its message says.

The largest is the one without memory, which rules out all that need more.
"""


@dataclass(frozen=True)
class Fault:
    """A fault, its outcome and the promises it broke."""

    name: str
    became: str
    says: str
    wall_s: float
    misses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name:32} {self.became:14} {self.wall_s:6.1f} s  {self.says[:90]}"


@contextmanager
def _new_place() -> Iterator[Place]:
    """A folder, and all that was started in it killed at the end."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        place = Place(Path(folder), uuid.uuid4().hex)
        try:
            yield place
        finally:
            for pid in place.living():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def in_candidates() -> Iterator[Fault]:
    """A tune in which every candidate but three has a different fault."""
    with _new_place() as place:
        place.write_config(_config(len(FAULTS) + 3))
        limit = f"--trial-timeout={slowness() * LEAST_TIMEOUT_S:.0f}"
        faults = "\n".join(FAULTS)
        process = place.start(*tune_flags(limit), fault=faults, stdin=subprocess.DEVNULL)
        output, _ = process.communicate(timeout=600 * slowness())
        gone = _see_gone(place)
        records = _records(place)
        for size, (name, (kinds, says)) in enumerate(FAULTS.items(), 4):
            yield _judge(name, records.get(size), kinds, says)
        sound = [records.get(size, {}) for size in (1, 2, 3)]
        misses = [*gone, *_unsound(output)]
        if process.returncode != 0:
            misses.append(f"exit code {process.returncode}: {output[-2000:]}")
        if not all("measurement" in record for record in sound):
            misses.append(f"sound candidates failed: {sound}")
        yield Fault("the tune around them", f"code {process.returncode}", "", 0.0, tuple(misses))


def _judge(
    name: str, record: dict[str, object] | None, kinds: tuple[str, ...], says: str
) -> Fault:
    if record is None:
        return Fault(name, "nothing", "", 0.0, ("the journal has no outcome",))
    failure = record.get("failure")
    kind, text, tail = MEASURED, "", ""
    if isinstance(failure, dict):
        kind, text = str(failure["kind"]), str(failure["detail"])
        tail = "\n".join(map(str, failure.get("log_tail", ())))
    wall_s = float(str(record["wall_s"]))
    misses = []
    if kind not in kinds:
        misses.append(f"{name} became {kind}: {text} {tail[-800:]}")
    if kind != MEASURED and says.lower() not in f"{text}\n{tail}".lower():
        misses.append(f"{name} says {text!r} {tail[-800:]!r}, not {says!r}")
    if len(text) > 1500:
        misses.append(f"{name} has a message of {len(text)} characters")
    if wall_s > slowness() * (LEAST_TIMEOUT_S + SPARE_S):
        misses.append(f"{name} took {wall_s:.0f} s")
    return Fault(name, kind, text, wall_s, tuple(misses))


def _config(sizes: int) -> dict[str, object]:
    return {
        "train_micro_batch_size_per_gpu": list(range(1, sizes + 1)),
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": 0},
        "autotuning": {"enabled": True, "tuner_type": "gridsearch", "tuner_early_stopping": 99},
    }


def _records(place: Place) -> dict[int, dict[str, object]]:
    lines = (place.results / "journal.jsonl").read_text().splitlines()
    found = [line for line in map(json.loads, lines) if "name" in line]
    return {int(line["name"].rpartition("tmbspg")[2]): line for line in found}


def _see_gone(place: Place, within_s: float = 5.0) -> list[str]:
    deadline_s = time.monotonic() + within_s
    while (living := place.living()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return [f"{len(living)} processes live on"] if living else []


def _unsound(output: str) -> list[str]:
    found = [f"{what!r} was printed" for what in ("\x1b", "\x9b") if what in output]
    lines = [line for line in output.splitlines() if line.startswith("Traceback")]
    return found + [f"a traceback was printed: {output[-1500:]}" for _ in lines[:1]]


def around_a_tune() -> Iterator[Fault]:
    """Faults of the folder, the disk, the clock and the processes of a tune."""
    for name, run in AROUND.items():
        with _new_place() as place:
            place.write_config(_config(3))
            start_s = time.monotonic()
            became, says, misses = run(place)
            wall_s = time.monotonic() - start_s
            misses += _see_gone(place)
            yield Fault(name, became, says, wall_s, tuple(f"{name}: {miss}" for miss in misses))


Ended = tuple[str, str, list[str]]


def _end(place: Place, codes: tuple[int, ...], says: str, *flags: str, fault: str = "") -> Ended:
    process = place.start(*tune_flags(*flags), fault=fault, stdin=subprocess.DEVNULL)
    return _end_of(process, codes, says)


def _end_of(process: subprocess.Popen[str], codes: tuple[int, ...], says: str) -> Ended:
    try:
        output, _ = process.communicate(timeout=150 * slowness())
    except subprocess.TimeoutExpired:
        process.kill()
        return "nothing", "", ["it did not end in time"]
    lines = [x for x in output.splitlines() if x.startswith("autoconf-launch: ")] or [""]
    misses = _unsound(output)
    if process.returncode not in codes:
        misses.append(f"exit code {process.returncode}: {output[-1500:]}")
    elif says not in output:
        misses.append(f"does not say {says!r}: {output[-1500:]}")
    return f"code {process.returncode}", lines[-1].removeprefix("autoconf-launch: "), misses


def _removes_results(place: Place) -> Ended:
    place.write_config(_config(4))
    return _end(place, (2,), "removed while it was in use", fault="removes the results folder")


def _stop(what: bytes) -> Callable[[Place], Ended]:
    """Stop a process of the tune by SIGSTOP once a trial runs."""

    def run(place: Place) -> Ended:
        process = place.start(*tune_flags(), stdin=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 30
        found: list[int] = []
        while not found and time.monotonic() < deadline_s:
            time.sleep(0.1)
            below = [pid for pid in place.living() if _parent(pid) == process.pid]
            found = [pid for pid in below if what in _command(pid)]
        for pid in found[:1]:
            os.kill(pid, signal.SIGSTOP)
        return _end_of(process, (0,), "Best")

    return run


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _full_disk(lines: int) -> Callable[[Place], Ended]:
    """Fill the disk of the results once the journal has so many lines; then make room again."""

    def run(place: Place) -> Ended:
        disk = place.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return "not run", "this machine does not let a test mount a disk", []
        try:
            return _fill(place, disk, lines)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    return run


def _fill(place: Place, disk: Path, lines: int) -> Ended:
    where, journal, filler = (disk / name for name in ("r", "r/journal.jsonl", "filler"))
    flag = f"--results-dir={where}"
    if lines == 0:
        _fill_up(filler)
    process = place.start(*tune_flags(flag), stdin=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 40
    while lines and process.poll() is None and time.monotonic() < deadline_s:
        if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
            _fill_up(filler)
            break
        time.sleep(0.02)
    first = _end_of(process, (4,), "the disk is full")
    filler.unlink(missing_ok=True)
    code, _, misses = _end(place, (0,), "", flag)
    return first[0], f"{first[1]}; with room again {code}", [*first[2], *misses]


def _fill_up(filler: Path) -> None:
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)


def _read_only(place: Place) -> Ended:
    disk = place.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return "not run", "this machine does not let a test mount a disk", []
    try:
        return _end(place, (2,), "cannot be written", f"--results-dir={disk}/r")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


ORDINARY = (
    "--max_tokens=4096", "--tokenizer=gpt2", "--pad_token=<pad>", "--eos_token=eos", "--author=me",
    "--text_key=text", "--monkey=m", "--wandb_api_key_file=key", "--tokens=all",
    "--data=abfss://container@account/path", "--repository=ssh://git@host/path",
)  # fmt: skip
"""Arguments that a hasty look takes for secrets."""
SECRET = "PLANT-a-secret"


def _takes_for_secrets(place: Place) -> Ended:
    """Ordinary arguments beside one secret: they stay as they are, and it is nowhere."""
    words = (*ORDINARY, f"--hf_token={SECRET}")
    process = place.start(*tune_flags(), *words, stdin=subprocess.DEVNULL)
    code, says, misses = _end_of(process, (0,), "Best")
    command = (place.results / "cmd_optimal.txt").read_text() if not misses else ""
    misses += [f"{word} is not in the command" for word in ORDINARY if word not in command]
    files = (path for path in place.results.rglob("*") if path.is_file())
    shown = [path for path in files if SECRET.encode() in path.read_bytes()]
    return code, says, [*misses, *(f"{path} has a secret" for path in shown)]


_CLOCK = """
import sys, time
real, start = time.time, time.monotonic()
time.time = lambda: real() - (3600 if time.monotonic() - start > 3 else 0)
from autoconf_launch.launcher.cli import main
sys.exit(main())
"""


def _clock_set_back(place: Place) -> Ended:
    environment = {**os.environ, "FAULT": "", "AUTOCONF_TEST_MARK": place.mark}
    process = subprocess.Popen(
        (sys.executable, "-c", _CLOCK, *tune_flags()),
        cwd=place.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return _end_of(process, (0,), "Best")


AROUND: dict[str, Callable[[Place], Ended]] = {
    "removes the results folder": _removes_results,
    "agent stopped by SIGSTOP": _stop(b"-S\0"),
    "fork server stopped by SIGSTOP": _stop(b"-u\0-c"),
    "disk full before the journal": _full_disk(0),
    "disk full in the journal": _full_disk(4),
    "disk full after the search": _full_disk(9),
    "read-only folder": _read_only,
    "clock set back by an hour": _clock_set_back,
    "ordinary arguments like secrets": _takes_for_secrets,
}
__all__ = ["AROUND", "COMMAND", "FAULTS", "Fault", "around_a_tune", "in_candidates"]
