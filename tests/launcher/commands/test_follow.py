"""Events of a tune that another process runs, by its journal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Record
from autoconf_launch.launcher.commands import show as module
from autoconf_launch.launcher.commands.show import show
from autoconf_launch.launcher.events import Event, RoundFinished, TrialFinished, TuneBegun
from autoconf_launch.launcher.results import Journal, read_results
from autoconf_launch.launcher.results.lease import Lease

from ...autotuner.playoff.played import steps_of
from ...autotuner.playoff.test_decision import SLOW_BASELINE, rounds
from ..report.fixed import RECORDS, write_folder


def rename(record: Record) -> Record:
    """The record with names as journals have them."""
    trial = record.trial
    name = trial.name.replace("t", "z0_gas1_tmbspg", 1)
    return replace(record, trial=replace(trial, name=name))


PLAYED = tuple(map(rename, rounds(SLOW_BASELINE, 3.0, 1.2, 1.0)))
SEARCHED = tuple(map(rename, SLOW_BASELINE))
WINNER = SEARCHED[2]
SOAK = Record(
    trial=replace(WINNER.trial, name=f"{WINNER.trial.name}_soak", soak_steps=5),
    outcome=steps_of(1.0),
    wall_s=9.0,
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)


def add(folder: Path, *records: Record) -> None:
    with Journal(folder / "journal.jsonl") as journal:
        for record in records:
            journal.write_record(record)


def events_of(folder: Path) -> Iterator[Event]:
    return module.follow_events(read_results(folder))


def test_search_rounds_and_verification_run_come_in_their_order(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", SEARCHED)
    add(folder, *PLAYED, SOAK)
    found = [event for event in events_of(folder) if isinstance(event, TrialFinished)]
    assert [event.record.trial.name for event in found] == [
        record.trial.name for record in (*SEARCHED, *PLAYED, SOAK)
    ]
    elapsed_s = [event.elapsed_s for event in found]
    assert elapsed_s == sorted(elapsed_s)
    assert elapsed_s[-1] == pytest.approx(len(SEARCHED) + len(PLAYED) + 9.0)


def test_the_rounds_so_far_have_the_standing_that_the_tune_says(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", SEARCHED)
    add(folder, *PLAYED)
    (last,) = [event for event in events_of(folder) if isinstance(event, RoundFinished)]
    assert last.number == max(record.trial.attempt for record in PLAYED)
    ranked = [record.trial.name for record in reversed(SEARCHED)]
    assert [standing.trial.name for standing in last.standings] == ranked


def test_lines_name_the_leader_and_the_verification_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", SEARCHED)
    add(folder, *PLAYED, SOAK)
    lines = "\n".join(show([str(folder), "--follow"])).splitlines()
    assert any(" playoff round " in one and "micro 3 · accum 1 leads; " in one for one in lines)
    assert any(" verification run ZeRO 0 · micro 3 · accum 1" in line for line in lines)
    rows = list(show([str(folder), "--follow", "--format", "csv"]))
    assert len(rows) == 1 + len(SEARCHED), "only trials are rows"


def test_a_tune_that_runs_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", RECORDS[:1])
    taken, seen = threading.Event(), threading.Event()

    def tune() -> None:
        with Lease(folder / "controller.lease"):
            taken.set()
            assert seen.wait(10.0)
            add(folder, *RECORDS[1:])

    other = threading.Thread(target=tune)
    other.start()
    assert taken.wait(10.0)
    found = []
    for event in events_of(folder):
        found.append(event)
        seen.set()
    other.join()
    begun, *others = found
    assert isinstance(begun, TuneBegun)
    assert [e.record for e in others if isinstance(e, TrialFinished)] == [*RECORDS]


def test_a_folder_that_starts_anew_is_followed_anew(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", RECORDS[:2])
    with Lease(folder / "controller.lease"):
        events = events_of(folder)
        first = [next(events) for _ in range(3)]
        (folder / "journal.jsonl").rename(folder / "aside")
        write_folder(folder, RECORDS[2:3])
        again = next(events)
    assert isinstance(first[2], TrialFinished)
    assert isinstance(again, TrialFinished)
    assert (first[2].record, again.record) == (RECORDS[1], RECORDS[2])
