"""Our tuner against DeepSpeed's Autotuner: one small GPT, 2 CPU ranks, ZeRO 0 to 3.

Each tuner runs as its users start it; then both choices, and the best of the whole space, are
measured again by plain launches in turn. ``--json`` prints one document. See README.md here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepspeed_peer.children import ChildError
from deepspeed_peer.choice import whole_space
from deepspeed_peer.measure import Arm, Runner, explore
from deepspeed_peer.report import Findings, Tuning, arms_of, as_text, document
from deepspeed_peer.running import training
from deepspeed_peer.tools import DeepSpeed, Ours, Tool, deepspeed_versions


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    parser.add_argument("--skip-deepspeed", action="store_true")
    parser.add_argument(
        "--deepspeed-python",
        type=Path,
        default=Path(sys.executable),
        help="a Python with deepspeed, tabulate and autoconf-launch; default: this one",
    )
    parser.add_argument("--blocks", type=int, default=15, help="turns of each arm at the end")
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a turn")
    parser.add_argument("--exhaustive-seconds", type=float, default=240.0)
    parser.add_argument("--deadline-s", type=float, default=1200.0, help="for each tuner")
    parser.add_argument("--keep", type=Path, help="a new folder for all files of all launches")
    return parser.parse_args()


def say(text: str) -> None:
    """Print progress to standard error; standard output has only the result."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def work_folder(keep: Path | None) -> Iterator[Path]:
    """The folder to keep, or a temporary folder."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="deepspeed-peer-") as name:
        yield Path(name)


def tune(tool: Tool, folder: Path, deadline_s: float) -> Tuning:
    """Let one tuner run."""
    say(f"tuning: {tool.name}   load {os.getloadavg()[0]:.1f}")
    tuned = tool.tune(folder / f"tune_{tool.name}", deadline_s)
    say(f"  {tuned.choice.name} after {tuned.trials} trials, {tuned.wall_s:.1f} s")
    return Tuning(tool=tool, tuned=tuned)


def tune_deepspeed(tool: DeepSpeed, folder: Path, deadline_s: float) -> Tuning:
    """DeepSpeed's turn, after a launch that does its once-per-machine compilation."""
    with training(tool, whole_space()[-1], folder / "first_deepspeed"):
        pass
    return tune(tool, folder, deadline_s)


def deepspeed_turn(
    arguments: argparse.Namespace, folder: Path
) -> tuple[Tuning | None, dict[str, Any]]:
    """DeepSpeed's tuning, or why there is none."""
    if arguments.skip_deepspeed:
        return None, {"deepspeed_missing": "skipped"}
    python, stub = arguments.deepspeed_python.absolute(), folder / "without_pdsh"
    versions = deepspeed_versions(python, stub)
    if versions is None:
        return None, {"deepspeed_missing": "not installed there, or not whole"}
    tool = DeepSpeed(python, without_pdsh=stub)
    try:
        found = tune_deepspeed(tool, folder, arguments.deadline_s)
    except (ChildError, ValueError) as error:
        say(str(error))
        return None, {"deepspeed_missing": str(error).splitlines()[0], "versions": versions}
    return found, {"versions": versions}


def final_arms(ours: Tuning, theirs: Tuning | None, finalists: tuple[Any, ...]) -> list[Arm]:
    """Each choice on each runtime, and the finalists on ours."""
    tunings = [tuning for tuning in (ours, theirs) if tuning is not None]
    choices = tuple(tuning.tuned.choice for tuning in tunings)
    arms = [*arms_of(ours.tool, (*choices, *finalists))]
    return arms if theirs is None else [*arms, *arms_of(theirs.tool, choices)]


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, in order; one document."""
    load = {"at_start": os.getloadavg()[0]}
    if load["at_start"] > (os.cpu_count() or 1) / 2:
        say(f"load {load['at_start']:.1f} before anything runs: speeds will not be comparable")
    ours = tune(Ours(), folder, arguments.deadline_s)
    load["after_our_tuning"] = os.getloadavg()[0]
    theirs, notes = deepspeed_turn(arguments, folder)
    load["after_deepspeed_tuning"] = os.getloadavg()[0]
    runner = Runner(folder=folder / "launches", steps=arguments.steps, say=say)
    runner.folder.mkdir()
    explored = explore(ours.arm, runner, arguments.exhaustive_seconds)
    load["after_exhaustive"] = os.getloadavg()[0]
    say(f"choices and finalists, {arguments.blocks} blocks   load {os.getloadavg()[0]:.1f}")
    arms = final_arms(ours, theirs, explored.finalists)
    speeds = runner.interleave(arms, lambda block: block < arguments.blocks)
    load["at_end"] = os.getloadavg()[0]
    found = Findings(ours=ours, deepspeed=theirs, explored=explored, speeds=speeds)
    machine = {"cores": os.cpu_count(), "one_minute_load": load}
    return {**document(found), **notes, "machine": machine}


def main() -> int:
    """Measure everything and print it."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with work_folder(arguments.keep) as folder:
            found = measure(arguments, folder)
    except ChildError as error:
        say(str(error))
        return 1
    print(json.dumps(found, indent=2) if arguments.json else as_text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
