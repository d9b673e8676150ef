"""A results folder that somebody else has written to, or handed over."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Record, Trial
from autoconf_launch.core import (
    Candidate,
    Failure,
    FailureKind,
    Layout,
    ResultsFolderError,
    note,
    noted_paths,
    notes_of,
    take_in,
)
from autoconf_launch.launcher.launch import file_tail
from autoconf_launch.launcher.results import (
    Fingerprint,
    ResultsPaths,
    is_held,
    open_folder,
    read_journal,
    read_result,
    write_private,
)
from autoconf_launch.launcher.results.lease import STALE_AFTER_S, Lease

PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=("cpu",), versions=())
NAME = "z0_gas1_tmbspg1"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsPaths:
    """An open study that began one trial and was killed; the user works in ``work``."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    made = ResultsPaths(results=work / "results", exps=work / "exps")
    with open_folder(made, PRINT, fresh=False) as folder:
        begin(folder.journal, NAME)
    made.trial(NAME).mkdir()
    return made


def begin(journal: object, name: str) -> None:
    journal.write_started(name=name, number=0, attempt="a", handle=None)  # type: ignore[attr-defined]


def open_it(paths: ResultsPaths) -> tuple[str, ...]:
    with open_folder(paths, PRINT, fresh=False) as folder:
        return folder.notes


def test_notes_of_a_killed_trial_move_only_its_files_in_the_working_directory(
    paths: ResultsPaths, tmp_path: Path
) -> None:
    diary, own, model = tmp_path / "diary.txt", Path.cwd() / "own.pt", Path.cwd() / "model.pt"
    for path in (diary, own, model):
        path.write_text("the user's")
    stranger = paths.trial("z3_gas1_tmbspg1")  # of which the journal says nothing
    stranger.mkdir()
    note(notes_of(stranger, 7), own)
    note(notes_of(paths.trial(NAME), 7), diary)
    note(notes_of(paths.trial(NAME), 7), model)
    said = " ".join(open_it(paths))
    assert f"{diary} stays" in said
    assert f"Moved {model} to {paths.trial(NAME) / 'saved'}" in said
    assert [path.exists() for path in (diary, own, model)] == [True, True, False]


@pytest.mark.parametrize("name", ["controller.lease", "journal.jsonl", "env.json", "summary.txt"])
def test_a_link_in_the_place_of_a_file_is_refused(
    paths: ResultsPaths, tmp_path: Path, name: str
) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("")
    (paths.results / name).unlink(missing_ok=True)
    (paths.results / name).symlink_to(diary)
    with pytest.raises(ResultsFolderError, match=f"{name} is a symbolic link"):
        open_it(paths)
    with pytest.raises(ResultsFolderError, match="symbolic link"):
        write_private(paths.results / name, "x")
    assert diary.read_text() == ""


def test_a_link_in_the_place_of_a_trials_folder_or_file_is_refused(
    paths: ResultsPaths, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (paths.trial(NAME) / "stdout.log").symlink_to(own / "log")
    paths.trial("z1_gas1_tmbspg1").symlink_to(own)
    for name in (NAME, "z1_gas1_tmbspg1"):
        with pytest.raises(ResultsFolderError, match="symbolic link"):
            paths.make_launch_folder(paths.trial(name))


def test_a_tune_ends_if_its_folder_is_moved_while_it_is_used(paths: ResultsPaths) -> None:
    with open_folder(paths, PRINT, fresh=False) as folder:
        paths.results.rename(paths.results.with_name("away"))
        with pytest.raises(ResultsFolderError, match="was moved or removed while it was in use"):
            begin(folder.journal, "z1_gas1_tmbspg1")


def test_a_link_is_not_emptied_where_a_folder_is_tried(
    paths: ResultsPaths, tmp_path: Path
) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("the user's")
    (paths.results / f".writable.{os.getpid()}").symlink_to(diary)
    paths.results.chmod(0o777)
    with pytest.raises(ResultsFolderError, match="--trust-results"):
        open_it(paths)
    assert diary.read_text() == "the user's"


def test_a_log_that_is_a_pipe_or_endless_has_no_last_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "endless.log").symlink_to("/dev/zero")
    assert file_tail(tmp_path / "pipe.log") == file_tail(tmp_path / "endless.log") == ()


@pytest.mark.parametrize("plant", ["a pipe", "a link to an endless file", "300,000 brackets"])
def test_a_planted_result_or_note_is_skipped(paths: ResultsPaths, plant: str) -> None:
    model = Path.cwd() / "model.pt"
    model.write_text("of a trial")
    note(notes_of(paths.trial(NAME), 7), model)
    stranger = paths.trial("z9_gas1_tmbspg1")
    stranger.mkdir()
    for path in (stranger / "result.json", notes_of(stranger, 7)):
        if plant == "a pipe":
            os.mkfifo(path)
        elif plant == "a link to an endless file":
            path.symlink_to("/dev/zero")
        else:
            path.write_text("[" * 300_000)
    assert read_result(stranger / "result.json") is None
    assert noted_paths(stranger) == ()
    assert take_in(paths.trial(NAME)) == (model,)


def test_a_file_larger_than_any_of_ours_is_refused(paths: ResultsPaths) -> None:
    with paths.journal.open("r+b") as file:
        file.truncate(200 << 30)  # nothing but a hole
    with pytest.raises(ResultsFolderError, match=r"journal\.jsonl is larger than 1024 MiB"):
        read_journal(paths.journal)


@pytest.mark.parametrize(
    "name",
    [
        *("../../x", "/x", "..", ".", "", "a/b", "a\n", "a\0", ".ssh", "\x1b[2J", "a" * 300),
        *("journal.jsonl", "env.json", "profile_model_info", "tracking", f"{NAME}.json", "z0"),
        *(f"{NAME}_best", f"x_{NAME}", f"{NAME}/..", f"z0_../_{NAME}", f"{NAME}\n"),
    ],
)
def test_a_name_that_leads_elsewhere_is_not_read(paths: ResultsPaths, name: str) -> None:
    trial = Trial(number=0, name=name, candidate=Candidate(layout=Layout()), space="z0")
    failure = Failure(kind=FailureKind.CRASHED, detail="x")
    record = Record(trial=trial, outcome=FailedTrial(failure=failure), wall_s=1.0)
    with open_folder(paths, PRINT, fresh=False) as folder:
        whole = paths.journal.read_bytes()
        folder.journal.write_record(record)
    with pytest.raises(ResultsFolderError, match="line 3 of"):
        read_journal(paths.journal)
    paths.journal.write_bytes(whole)
    with open_folder(paths, PRINT, fresh=False) as folder:
        begin(folder.journal, name)
    with pytest.raises(ResultsFolderError, match="line 3 of"):
        read_journal(paths.journal)


def test_only_the_owner_can_open_a_lease(paths: ResultsPaths) -> None:
    with Lease(paths.lease):
        assert stat.S_IMODE(paths.lease.stat().st_mode) == 0o600


def test_who_may_read_an_old_lease_does_not_lock_its_owner_out(paths: ResultsPaths) -> None:
    paths.lease.write_text("{}")
    paths.lease.chmod(0o644)
    with paths.lease.open() as file:  # as anybody could who may read it
        fcntl.flock(file, fcntl.LOCK_EX)
        with Lease(paths.lease):
            assert is_held(paths.lease)


def test_a_lease_dated_in_the_future_is_not_held(paths: ResultsPaths) -> None:
    paths.lease.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    os.utime(paths.lease, (time.time() + 2 * STALE_AFTER_S,) * 2)
    assert not is_held(paths.lease)
    assert open_it(paths) == ()


@pytest.mark.parametrize("pid", [10**30, -1, 0])
def test_a_lease_of_an_impossible_process_is_not_held(paths: ResultsPaths, pid: int) -> None:
    paths.lease.write_text(json.dumps({"host": socket.gethostname(), "pid": pid}))
    assert not is_held(paths.lease)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    assert os.umask(before) == 0


@pytest.mark.usefixtures("no_umask")
def test_results_are_never_writable_by_others(tmp_path: Path) -> None:
    paths = ResultsPaths(results=tmp_path / "results", exps=tmp_path / "exps")
    with open_folder(paths, PRINT, fresh=False):
        paths.make_launch_folder(paths.trial(NAME))
    found = [paths.results, paths.exps, *paths.results.rglob("*")]
    assert [path for path in found if path.stat().st_mode & 0o022] == []


def test_pipes_are_removed_before_a_launch_and_at_the_end(paths: ResultsPaths) -> None:
    os.mkfifo(paths.trial(NAME) / "stdout.log")
    paths.make_launch_folder(paths.trial(NAME))
    assert list(paths.trial(NAME).iterdir()) == []
    with open_folder(paths, PRINT, fresh=False):
        os.mkfifo(paths.trial(NAME) / "turn.0")
    assert not (paths.trial(NAME) / "turn.0").exists()


@pytest.mark.parametrize(
    ("keep", "says"), [((1, 2), "it is not a header"), ((0, 1, 0), "line 3 of")]
)
def test_a_journal_without_a_header_or_with_two_is_not_believed(
    paths: ResultsPaths, keep: tuple[int, ...], says: str
) -> None:
    lines = paths.journal.read_bytes().splitlines(keepends=True)
    paths.journal.write_bytes(b"".join(lines[number] for number in keep if number < len(lines)))
    with pytest.raises(ResultsFolderError, match=says):
        open_it(paths)


def test_what_others_can_write_or_own_is_refused_unless_trusted(paths: ResultsPaths) -> None:
    trusted = dataclasses.replace(paths, trusts_others=True)
    paths.results.chmod(0o777)
    with pytest.raises(ResultsFolderError, match="--trust-results"):
        open_it(paths)
    assert open_it(trusted) == ()
    paths.results.chmod(0o700)
    paths.journal.chmod(0o666)
    with pytest.raises(ResultsFolderError, match="can be written by other users"):
        open_it(paths)
    paths.journal.chmod(0o600)
    if os.geteuid() == 0:  # only root can give a folder to somebody else
        os.chown(paths.results, 12345, 12345)
        with pytest.raises(ResultsFolderError, match="belongs to user 12345"):
            open_it(paths)
        assert open_it(trusted) == ()
