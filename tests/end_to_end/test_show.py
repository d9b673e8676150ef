"""The live table on a real pseudo-terminal, and ``show`` during a tune."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import decode_record
from autoconf_launch.launcher.report import label

from .conftest import COMMAND, SCRIPT, Place, wait_until

TUNE = ("--autotuning=tune", "--tuner-num-trials=1", str(SCRIPT), "--config", "config.json")
SHOW_CURSOR, HIDE_CURSOR, UP = "\x1b[?25h", "\x1b[?25l", "\x1b[1A"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass
class Terminal:
    """A pseudo-terminal of 100 columns; ``process`` has it as its controlling one."""

    ours: int
    theirs: int
    before: list[object]
    text: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self, place: Place, *argv: str, fault: str = "", **variables: str) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "FAULT": fault, **variables}
        environment["AUTOCONF_TEST_MARK"] = place.mark
        self.process = subprocess.Popen(
            (*COMMAND, *argv),
            cwd=place.folder,
            env=environment,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read_until(self, is_there: Callable[[], bool], timeout_s: float = 60.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_there():
            assert time.monotonic() < deadline_s, self.text
            if select.select([self.ours], [], [], 0.1)[0]:
                self.text += os.read(self.ours, 1 << 16).decode(errors="replace")

    def read_to_end(self) -> int:
        process = self.process
        assert process is not None
        self.read_until(lambda: process.poll() is not None)
        while select.select([self.ours], [], [], 0.0)[0]:
            self.text += os.read(self.ours, 1 << 16).decode(errors="replace")
        return process.returncode

    def is_as_before(self) -> bool:
        shown = self.text.rfind(SHOW_CURSOR) >= self.text.rfind(HIDE_CURSOR)
        return shown and termios.tcgetattr(self.theirs) == self.before

    def plain(self) -> str:
        return CONTROL.sub("", self.text)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    made = Terminal(ours, theirs, termios.tcgetattr(theirs))
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    os.close(ours)
    os.close(theirs)


@pytest.mark.slow
def test_a_tune_on_a_terminal_is_one_live_table(place: Place, terminal: Terminal) -> None:
    terminal.start(place, *TUNE)
    assert terminal.read_to_end() == 0, terminal.text
    assert UP in terminal.text, "it was drawn in place"
    plain = terminal.plain()
    phases = r"^profile .*^search \d.*^verification .*^done "
    assert re.search(phases, plain, flags=re.DOTALL | re.MULTILINE), plain
    table = plain.rpartition("\ndone ")[2]
    assert "ZeRO 0 · micro 1 · accum 4" in table
    kept = (place.results / "summary.txt").read_text()
    answer = kept.partition("\n| tuning_space")[0]
    assert answer.split() == table[table.index("\n\n") :].split()
    commands = [line for line in answer.splitlines() if line.startswith("  ")]
    assert all(f"\n{line}\n" in table for line in commands)
    assert terminal.is_as_before()


def test_ctrl_c_ends_the_table_and_gives_the_terminal_back(
    place: Place, terminal: Terminal
) -> None:
    terminal.start(place, *TUNE, fault="hang")
    terminal.read_until(lambda: "profile" in terminal.plain())
    terminal.read_until(lambda: len(place.living()) >= 3)
    os.write(terminal.ours, b"\x03")
    assert terminal.read_to_end() == 130
    assert terminal.plain().rstrip().endswith("the same command continues from here.")
    assert terminal.is_as_before()


def test_a_failing_baseline_ends_with_its_sentence(place: Place, terminal: Terminal) -> None:
    terminal.start(place, *TUNE, fault="import")
    assert terminal.read_to_end() == 3
    assert terminal.plain().rstrip().endswith("no module of that kind")
    assert terminal.is_as_before()


def test_following_a_tune_shows_its_trials_and_ends_with_it(place: Place) -> None:
    tune = place.start("--soak-steps=0", *TUNE)
    wait_until((place.results / "journal.jsonl").exists, "there is no journal")
    state = json.loads(place.here("show", str(place.results), "--json")[1])["state"]
    code, output = place.here("show", "--follow", str(place.results))
    tune.communicate(timeout=20)
    records = [decode_record(line) for line in place.journal("name")]
    expected = [label(record.trial.candidate) for record in records]
    assert (code, state) == (0, "running"), output
    shown = [line.split("  ") for line in output.splitlines() if "] trial " in line]
    assert [next(part.strip() for part in parts if "ZeRO" in part) for parts in shown] == expected
    kept = (place.results / "summary.txt").read_text()
    assert output.rstrip().endswith(kept.partition("\nDetails\n")[0].rstrip())


@pytest.mark.slow
def test_following_on_a_terminal_draws_the_same_table(place: Place, terminal: Terminal) -> None:
    tune = place.start("--soak-steps=5", *TUNE)
    wait_until((place.results / "journal.jsonl").exists, "there is no journal")
    terminal.start(place, "show", "--follow", str(place.results))
    assert terminal.read_to_end() == 0, terminal.text
    tune.communicate(timeout=20)
    plain = terminal.plain()
    assert UP in terminal.text
    assert re.search(r"^search \d.*^done ", plain, flags=re.DOTALL | re.MULTILINE)
    answer = (place.results / "summary.txt").read_text().partition("\n| tuning_space")[0]
    assert " ".join(answer.split()) in " ".join(plain.split())
    assert terminal.is_as_before()


@pytest.mark.parametrize("verb", [("show", "nothing"), ("compare", "nothing", "nothing")])
def test_what_is_no_results_folder_is_one_sentence_and_code_2(
    place: Place, verb: tuple[str, ...]
) -> None:
    code, output = place.here(*verb)
    assert code == 2
    assert output.startswith("autoconf-launch: nothing is not a folder; give the results folder")
    assert len(output.splitlines()) == 1


def test_a_reader_that_has_seen_enough_is_no_error(place: Place) -> None:
    Path(place.results).mkdir()
    started = '{"started": {"name": "z0_gas1_tmbspg1", "number": 1, "attempt": "a", "host": "h",'
    started += ' "pid": 1,'
    print_ = '{"script": "", "arguments": [], "config": "", "hardware": [], "versions": []}'
    lines = [f'{{"version": 1, "fingerprint": {print_}}}']
    lines += [f'{started} "start_unix_s": {n}}}}}' for n in range(3)]
    (place.results / "journal.jsonl").write_text("\n".join(lines) + "\n")
    command = (*COMMAND, "show", str(place.results))
    reader, writer = os.pipe()
    os.close(reader)
    answer = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (answer.returncode, answer.stderr) == (0, b"")
