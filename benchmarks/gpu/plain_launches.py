"""Plain launches of ``train.py``, as a user who tunes by hand makes them."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from planned import Configuration

SCRIPT = Path(__file__).parent / "train.py"
OUT_OF_MEMORY = "out of memory"
_STEPS = 5
_TIMED = 3
_STEP = re.compile(r"^step \d+ loss \S+ (?P<seconds>[0-9.]+) s$", re.MULTILINE)
_WORDS_OF_MEMORY = re.compile(r"OutOfMemoryError|out of memory|DefaultCPUAllocator")
_SECONDS_TO_END = 20


class OutOfTimeError(Exception):
    """The deadline came before a launch, or during it; the message is what it had printed."""


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The end of a part of the benchmark, in seconds of ``time.monotonic``."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(at_s=time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.at_s - time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of the script.

    Attributes:
        step_s: median of the last steps, in seconds; None if the launch failed.
        wall_s: duration of the whole launch, in seconds.
        failure: ``out of memory``, or the last line of what the script printed.
    """

    configuration: Configuration
    step_s: float | None
    wall_s: float
    failure: str | None = None


Launcher = Callable[[Configuration], Launch]


def tune_by_hand(launch: Launcher, first: int, global_batch: int) -> Iterator[Launch]:
    """The launches of a careful user: bf16 from the start, larger micro-batches, then recompute.

    The micro-batch doubles until memory runs out. From there on checkpointing is on, and it
    doubles until memory runs out again or it reaches the global batch.
    """
    micro_batch = first
    for checkpointing in ("none", "full"):
        while micro_batch <= global_batch:
            done = launch(Configuration(micro_batch=micro_batch, checkpointing=checkpointing))
            yield done
            if done.failure:
                break
            micro_batch *= 2


def launch_script(
    model: str, global_batch: int, configuration: Configuration, deadline: Deadline
) -> Launch:
    """Run the script for a few steps.

    Raises:
        OutOfTimeError: the deadline came before the end of the launch.
    """
    began_s = time.monotonic()
    command = (sys.executable, str(SCRIPT), *script_arguments(model, global_batch, configuration))
    code, text = run_until((*command, f"--steps={_STEPS}"), deadline)
    wall_s = time.monotonic() - began_s
    if code:
        return Launch(
            configuration=configuration, step_s=None, wall_s=wall_s, failure=failure_of(text)
        )
    steps = [float(match["seconds"]) for match in _STEP.finditer(text)]
    return Launch(
        configuration=configuration, step_s=statistics.median(steps[-_TIMED:]), wall_s=wall_s
    )


def script_arguments(model: str, global_batch: int, configuration: Configuration) -> list[str]:
    """The script's command line for one configuration."""
    return [
        f"--model={model}",
        f"--batch_size={configuration.micro_batch}",
        f"--accumulation={global_batch // configuration.micro_batch}",
        f"--checkpointing={configuration.checkpointing}",
        f"--precision={configuration.precision}",
        f"--compile={int(configuration.compiled)}",
    ]


def failure_of(text: str) -> str:
    """The failure of a script by its output."""
    if _WORDS_OF_MEMORY.search(text):
        return OUT_OF_MEMORY
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "no output"


def run_until(
    command: Sequence[str],
    deadline: Deadline,
    *,
    folder: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Exit code and output of a command, which is ended at the deadline.

    Raises:
        OutOfTimeError: the deadline came first; the command had time to write its results.
    """
    if deadline.left_s <= 0:
        raise OutOfTimeError
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(extra or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=deadline.left_s)
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(_output_until_end(process)) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, text


def _output_until_end(process: subprocess.Popen[str]) -> str:
    """Ask a process to end, and return all that it printed."""
    process.terminate()
    try:
        return process.communicate(timeout=_SECONDS_TO_END)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]
