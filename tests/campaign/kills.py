"""Random kills of every process of a tune: it goes on, repeats nothing and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ..end_to_end.conftest import Place, clean_place

SIZES = tuple(range(1, 9))
SCRIPT = """
import argparse, time
import torch
import autoconf_launch.runtime as runtime

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank", type=int, default=0)
model = torch.nn.Linear(16, 1)

def loss_of(model, batch):
    time.sleep(0.05)  # for any batch, so that the largest is the fastest of all
    return model(batch).square().mean()

engine = runtime.initialize(model, parser.parse_args().config, loss_fn=loss_of)
for step in range(8):
    engine.step(torch.ones(engine.samples_per_step, 16))
"""
CONFIG = {
    "train_micro_batch_size_per_gpu": list(SIZES),
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 0},
    "autotuning": {"enabled": True, "tuner_early_stopping": 9, "tuner_type": "gridsearch"},
}
ARGV = (
    *("--autotuning=tune", "--num_gpus=2", "--max-parallel-trials=1", "--good-enough=0%"),
    *("--allow-global-batch-change", "--soak-steps=8", "script.py", "--config=config.json"),
)
GONE_S, LONGEST_S, APPEARS_S, MOST_STARTS = 5.0, 4.5, 30.0, 12
LIMIT_S = 600.0
CODES = {
    "KILL": (-signal.SIGKILL,),
    "TERM": (75, 0),
    "HUP": (-signal.SIGHUP, 75, 0),
    "INT": (130, 0),
    "INT twice": (130, 0),
}
"""Exit code of a controller; 0 if it ended by itself just before."""


@dataclass
class Story:
    """A study that is killed until it is over."""

    place: Place
    random: Random
    kills: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def miss(self, why: str) -> None:
        self.misses.append(f"{' > '.join(self.kills)}: {why}")


def run_story(seed: str, number: int, kills: int, folder: Path) -> Story:
    """Tune, kill ``kills`` times, tune to the end, and see what is left."""
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208
    with clean_place(folder) as place:
        story = Story(place, Random(f"{seed} kills {number}"))
        place.write_config(CONFIG)
        (place.folder / "script.py").write_text(SCRIPT)
        names: list[str] = []
        for _ in range(kills):
            _start_and_kill(story)
            now = _measure(place)
            if now[: len(names)] != names:
                story.miss(f"measured {names}, and then the journal has {now}")
            names = now
        _run_to_end(story)
        left = {name for name in set(os.listdir("/dev/shm")) - before if _is_of(name, story)}  # noqa: PTH208
        if left:
            story.miss(f"/dev/shm has {left}")
    return story


def _start_and_kill(story: Story) -> None:
    process = story.place.start(*ARGV)
    who, how = _draw(story.random)
    story.kills.append(f"{who} {how}")
    try:
        process.communicate(timeout=story.random.uniform(0.2, LONGEST_S))
        story.kills[-1] += " (over before)"
        return
    except subprocess.TimeoutExpired:
        pass
    story.seen |= set(story.place.living())
    if who == "controller":
        _stop(story, process, how)
        return
    deadline_s = time.monotonic() + APPEARS_S
    found: list[int] = []
    while not found and process.poll() is None and time.monotonic() < deadline_s:
        found = _processes(process.pid, story.place).get(who, [])
        time.sleep(0.02)
    if found:
        with suppress(ProcessLookupError):
            os.kill(story.random.choice(found), signal.Signals[f"SIG{how}"])
    else:
        story.kills[-1] += " (none there)"
    time.sleep(story.random.uniform(0.0, 3.0))
    _stop(story, process, "KILL", counts=False)


def _draw(random: Random) -> tuple[str, str]:
    who = random.choice(("controller", "controller", "agent", "fork server", "rank"))
    hows = (
        ("KILL", "TERM", "HUP", "INT", "INT twice")
        if who == "controller"
        else ("KILL", "TERM", "HUP")
    )
    return who, random.choice(hows)


def _stop(story: Story, process: subprocess.Popen[str], how: str, *, counts: bool = True) -> None:
    """Signal the controller; it and all its processes are gone in time."""
    start_s = time.monotonic()
    process.send_signal(signal.Signals[f"SIG{how.split()[0]}"])
    if how.endswith("twice"):
        time.sleep(story.random.uniform(0.0, 0.5))
        process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        story.miss("the command did not end within 20 s")
    _see_all_gone(story, start_s)
    sent = signal.Signals[f"SIG{how.split()[0]}"]
    is_pythons = output.startswith("Traceback") and output.endswith("KeyboardInterrupt\n")
    begins = not output or is_pythons  # Python itself was not ready, and nothing was started
    codes = (*CODES[how], -sent) if begins else CODES[how]
    if counts and process.returncode not in codes:
        story.miss(f"exit code {process.returncode}: {output[-300:]}")
    if "Traceback" in output and not (is_pythons and process.returncode == -signal.SIGINT):
        story.miss(f"traceback: {output[-600:]}")


def _see_all_gone(story: Story, start_s: float) -> None:
    while story.place.living() and time.monotonic() - start_s < 4 * GONE_S:
        time.sleep(0.05)
    if (took_s := time.monotonic() - start_s) > GONE_S:
        story.miss(f"the last process was gone after {took_s:.1f} s")
    for pid in story.place.living():
        story.miss(f"process {pid} lives on")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes(controller: int, place: Place) -> dict[str, list[int]]:
    """Numbers of the tune's living processes by what they are."""
    parents = {}
    for pid in place.living():
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            parents[pid] = int(stat[1])
    found: dict[str, list[int]] = {}
    for pid, parent in parents.items():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            is_ours = parent == controller
            if is_ours and b"agent.py" in words and b"-S" in words.split(b"\0"):
                found.setdefault("agent", []).append(pid)
            elif is_ours and b"agent.py" in words:
                found.setdefault("fork server", []).append(pid)
            elif b"agent.py" in words and parents.get(parent) == controller and _is_leader(pid):
                found.setdefault("agent", []).append(pid)
            elif not is_ours and pid != controller:
                found.setdefault("rank", []).append(pid)
    return found


def _is_leader(pid: int) -> bool:
    """Agents lead their own session; their ranks do not."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _run_to_end(story: Story) -> None:
    """The same command, until it says that the study is over."""
    for _ in range(MOST_STARTS):
        process = story.place.start(*ARGV)
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            story.miss(f"nothing within {LIMIT_S} s")
            _stop(story, process, "KILL", counts=False)
            return
        if process.returncode == 0:
            break
    if process.returncode != 0:
        story.miss(f"exit code {process.returncode}: {output[-600:]}")
        return
    _see_answer(story, output)


def _see_answer(story: Story, output: str) -> None:
    """Every candidate once, and the fastest of those whose launch was not killed wins."""
    records = _records(story.place)
    names = [line["name"] for line in records if "measurement" in line]
    if len(names) != len(set(names)):
        story.miss(f"measured twice: {names}")
    failed = {line["name"] for line in records if "failure" in line} - set(names)
    if len(names) + len(failed) != len(SIZES):
        story.miss(f"{names} and {failed} are not {len(SIZES)} candidates")
    sizes = [int(str(name).rpartition("tmbspg")[2]) for name in names]
    config = json.loads((story.place.results / "ds_config_optimal.json").read_text())
    won = config["train_micro_batch_size_per_gpu"]
    if won != max(sizes, default=0) and not failed:
        story.miss(f"{won} won, not {max(sizes)}: {output[-1500:]}")


def _records(place: Place) -> list[dict[str, object]]:
    journal = place.results / "journal.jsonl"
    lines = journal.read_bytes().rpartition(b"\n")[0].splitlines() if journal.exists() else []
    return [line for line in map(json.loads, lines) if "name" in line]


def _measure(place: Place) -> list[str]:
    return [str(line["name"]) for line in _records(place) if "measurement" in line]


def _is_of(name: str, story: Story) -> bool:
    """True if a name in shared memory is of a process of the story."""
    return any(str(pid) in name for pid in story.seen)
