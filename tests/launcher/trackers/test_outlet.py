"""With real processes and trackers that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.trackers.base import TrackedStudy
from autoconf_launch.launcher.trackers.outlet import Outlet, finish_all

from .told import STUDY, trial

pytestmark = pytest.mark.usefixtures("toys")


def outlet(tmp_path: Path, tracker: str) -> Outlet:
    folder = tmp_path / "kept"
    folder.mkdir(exist_ok=True)
    study = TrackedStudy(name="s", project=None, folder=str(folder))
    return Outlet("toy", f"toy_trackers:{tracker}", study, folder / "tracker.log")


def tell(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "kept/told.jsonl").open()]


def warnings(notes: list[Note]) -> list[str]:
    return [note.text for note in notes if note.warning]


def all_told(tmp_path: Path, tracker: str, within_s: float = 30.0) -> list[Note]:
    one = outlet(tmp_path, tracker)
    notes = [note for entry in STUDY for note in one.send(entry)]
    return [*notes, *finish_all([one], within_s)]


def gone(pid: int) -> bool:
    """Within a while."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_tracker_is_told_everything_once_and_in_order_under_one_id(tmp_path: Path) -> None:
    assert warnings(all_told(tmp_path, "Recorder")) == []
    made, *middle, closed = tell(tmp_path)
    assert (made[0], closed) == ("made", ["closed", ""])
    assert [run for _, run in middle] == [entry.run for entry in STUDY]
    all_told(tmp_path, "Recorder")
    lines = tell(tmp_path)
    assert len({value for what, value in lines if what == "made"}) == 1
    assert sum(what == "trial" for what, _ in lines) == 3


def test_a_torn_line_of_what_was_kept_is_dropped(tmp_path: Path) -> None:
    all_told(tmp_path, "Recorder")
    kept = tmp_path / "kept/logged.jsonl"
    *whole, last = kept.read_text().splitlines()
    kept.write_text("\n".join([*whole, last[:-4]]) + "\n")
    assert warnings(all_told(tmp_path, "Recorder")) == []
    assert [what for what, _ in tell(tmp_path)].count("choice") == 2


@pytest.mark.parametrize("tracker", ["HangsWhenMade", "HangsAtATrial", "HangsInTheEnd"])
def test_a_tracker_that_hangs_is_ended_with_one_warning(tmp_path: Path, tracker: str) -> None:
    one = outlet(tmp_path, tracker)
    start_s = time.monotonic()
    notes = [note for entry in STUDY for note in one.send(entry)]
    assert time.monotonic() - start_s < 0.5
    notes += finish_all([one], 1.5)
    assert time.monotonic() - start_s < 6.0
    (warning,) = warnings(notes)
    assert "it was too slow to accept every run" in warning


def test_a_tracker_that_hangs_takes_any_number_of_entries(tmp_path: Path) -> None:
    one = outlet(tmp_path, "HangsAtATrial")
    start_s = time.monotonic()
    for number in range(5000):  # more than a pipe holds
        one.send(trial(f"z0_tmbspg{number}", number=number))
    took_s = time.monotonic() - start_s
    one.end()
    assert took_s < 3.0


def test_a_tracker_that_ends_slowly_has_its_time(tmp_path: Path) -> None:
    one = outlet(tmp_path, "EndsSlowly")
    one.send(STUDY[0])
    assert warnings(list(finish_all([one], 20.0))) == []
    assert tell(tmp_path)[-1] == ["closed", ""]


def test_trackers_finish_side_by_side(tmp_path: Path) -> None:
    hanging = [outlet(tmp_path, "HangsWhenMade") for _ in range(3)]
    start_s = time.monotonic()
    notes = list(finish_all(hanging, 1.0))
    assert time.monotonic() - start_s < 2.5
    assert len(warnings(notes)) == 3


@pytest.mark.parametrize(
    ("tracker", "says"),
    [
        ("RaisesWhenMade", "cannot be used, so no run is sent there (ValueError: no room here)"),
        ("RaisesAtATrial", "(ValueError: no room for this)"),
        ("DiesAtATrial", "it has ended, so no more runs are kept"),
    ],
)
def test_a_tracker_that_fails_is_one_warning(tmp_path: Path, tracker: str, says: str) -> None:
    (warning,) = warnings(all_told(tmp_path, tracker))
    assert says in warning
    assert warning.endswith("tracker.log.")


def test_what_was_not_taken_is_told_again_in_the_next_session(tmp_path: Path) -> None:
    all_told(tmp_path, "RaisesAtATrial")
    assert [what for what, _ in tell(tmp_path)] == ["made", *["best"] * 3, "choice", "closed"]
    all_told(tmp_path, "Recorder")
    assert [what for what, _ in tell(tmp_path)].count("trial") == 3


def test_entries_after_its_end_are_dropped_in_silence(tmp_path: Path) -> None:
    one = outlet(tmp_path, "RaisesWhenMade")
    list(finish_all([one], 30.0))
    assert one.send(STUDY[0]) == ()


def test_what_a_library_prints_or_reads_disturbs_nothing(tmp_path: Path) -> None:
    assert warnings(all_told(tmp_path, "IsNoisy")) == []
    assert [what for what, _ in tell(tmp_path)].count("trial") == 3
    assert "not a line of ours" in (tmp_path / "kept/tracker.log").read_text()


def test_what_a_tracker_started_ends_with_it(tmp_path: Path) -> None:
    all_told(tmp_path, "LeavesAProcess")
    assert gone(int((tmp_path / "kept/pid").read_text()))


LAUNCHER = """
import sys, time
from pathlib import Path
from autoconf_launch.launcher.trackers.outlet import Outlet
from autoconf_launch.launcher.trackers.base import TrackedStudy
folder = Path(sys.argv[1])
study = TrackedStudy(name="s", project=None, folder=str(folder))
one = Outlet("toy", "toy_trackers:HangsAtATrial", study, folder / "tracker.log")
while not one.attend():
    time.sleep(0.02)
print(one._process.pid, flush=True)
time.sleep(100)
"""


def test_a_tracker_ends_by_itself_when_the_launcher_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        tracker = int(launcher.stdout.readline())
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    assert gone(tracker)
