from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.launcher.events import Event, Finished, Note
from autoconf_launch.launcher.interrupts import InterruptedBySignalError
from autoconf_launch.launcher.request import TrackingChoice
from autoconf_launch.launcher.trackers import Feed, track_events

from ..report.fixed import RECORDS, events

pytestmark = pytest.mark.usefixtures("toys")
HANGING = TrackingChoice(trackers=("HangsWhenMade",))
RECORDER = TrackingChoice(trackers=("Recorder",))
SAID = (*events(), Finished(text="", winner=RECORDS[3]))


def tell(folder: Path) -> list[str]:
    path = folder / "Recorder/told.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)[0] for line in lines]


def stopped_after(
    folder: Path, choice: TrackingChoice, error: BaseException, heard: str | None = None
) -> None:
    """All is said, and the recorder has been told of ``heard``, before the study is stopped."""
    with track_events(choice, Feed("m"), folder, lambda event: None) as listener:
        for event in SAID:
            listener(event)
        until_s = time.monotonic() + 30
        while heard is not None and heard not in tell(folder) and time.monotonic() < until_s:
            time.sleep(0.05)
        raise error


def heard_by_the_view(choice: TrackingChoice, folder: Path) -> list[Event]:
    heard: list[Event] = []
    with track_events(choice, Feed("m"), folder, heard.append) as listener:
        for event in SAID:
            listener(event)
    return heard


def test_trackers_are_told_of_the_study_and_the_view_hears_every_event(tmp_path: Path) -> None:
    heard = heard_by_the_view(RECORDER, tmp_path)
    assert tell(tmp_path) == ["made", *["trial", "best"] * 5, "choice", "closed"]
    assert [event for event in heard if not isinstance(event, Note)] == list(SAID)


def test_without_trackers_the_listener_is_the_view_itself(tmp_path: Path) -> None:
    view = list[Event]().append
    folder = tmp_path / "kept"
    with track_events(TrackingChoice(), Feed("m"), folder, view) as listener:
        assert listener == view
    assert not folder.exists()


def test_a_tracker_does_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    choice = TrackingChoice(trackers=("RaisesWhenMade", "HangsAtATrial", "Recorder"))
    with pytest.raises(InterruptedBySignalError):
        stopped_after(tmp_path, choice, InterruptedBySignalError(15), heard="choice")
    assert tell(tmp_path)[-2:] == ["choice", "closed"]


def test_an_interrupted_study_waits_only_shortly(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with pytest.raises(InterruptedBySignalError):
        stopped_after(tmp_path, HANGING, InterruptedBySignalError(15))
    assert time.monotonic() - start_s < 4


def test_a_study_that_finds_nothing_lets_trackers_finish(tmp_path: Path) -> None:
    with pytest.raises(NothingFeasibleError):
        stopped_after(tmp_path, RECORDER, NothingFeasibleError("nothing fits"))
    assert tell(tmp_path)[-1] == "closed"


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    heard = heard_by_the_view(RECORDER, blocked)
    (note,) = (event for event in heard if isinstance(event, Note))
    assert note.warning
    assert "Recorder: it cannot be started" in note.text
