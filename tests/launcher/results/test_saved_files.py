"""What ranks saved among the user's files before they were ended from outside."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from autoconf_launch.core.rank import notes_of_saved
from autoconf_launch.launcher.results.journal import Fingerprint
from autoconf_launch.launcher.results.paths import ResultsPaths
from autoconf_launch.launcher.results.results_folder import open_folder
from autoconf_launch.launcher.results.saved_files import take_in, take_in_all

LONG_S = 1000.0
PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=("cpu",), versions=())


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    path = tmp_path / "results" / "z0"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_text("of a trial")
    return path


def note(trial: Path, *paths: Path, age_s: float = 0.0) -> None:
    notes = trial / notes_of_saved(7)
    notes.write_text("".join(f"{json.dumps(str(path))}\n" for path in paths) + '"/torn')
    os.utime(notes, (time.time() - age_s,) * 2)


def taken(trial: Path) -> list[str]:
    return sorted(path.name.partition("_")[2] for path in trial.glob("saved/*"))


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_was_noted_is_moved_below_the_trial(trial: Path, saved: Path, is_ours: bool) -> None:
    note(trial, saved, saved.with_name("never_written.pt"))
    take_in_all(trial.parent, is_ours=is_ours)
    assert (taken(trial), saved.exists(), [*trial.glob("*.jsonl")]) == (["model.pt"], False, [])


def test_what_the_user_has_written_since_stays(trial: Path, saved: Path) -> None:
    note(trial, saved, age_s=LONG_S)
    take_in(trial, is_ours=False)
    assert (taken(trial), saved.read_text()) == ([], "of a trial")


def test_files_of_one_name_are_all_kept(trial: Path, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / saved.name
    other.parent.mkdir()
    other.touch()
    note(trial, saved, other)
    take_in(trial, is_ours=True)
    assert taken(trial) == ["model.pt"] * 2


def test_no_link_is_followed(trial: Path, saved: Path, tmp_path: Path) -> None:
    link, folder = tmp_path / "link.pt", tmp_path / "folder"
    link.symlink_to(saved)
    folder.symlink_to(tmp_path, target_is_directory=True)
    note(trial, link, folder / saved.name)
    take_in(trial, is_ours=True)
    assert (taken(trial), link.is_symlink(), saved.exists()) == ([], True, True)


def test_a_study_takes_in_what_a_dead_controller_left(trial: Path, saved: Path) -> None:
    note(trial, saved)
    with open_folder(paths_of(trial), PRINT, fresh=False):
        assert (taken(trial), saved.exists()) == (["model.pt"], False)


def test_a_study_that_is_interrupted_takes_in_what_its_launches_left(
    trial: Path, saved: Path
) -> None:
    def interrupted() -> None:
        with open_folder(paths_of(trial), PRINT, fresh=False):
            note(trial, saved)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (taken(trial), saved.exists()) == (["model.pt"], False)


def paths_of(trial: Path) -> ResultsPaths:
    return ResultsPaths(results=trial.parent, exps=trial.parent.with_name("exps"))
