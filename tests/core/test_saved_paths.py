"""Files that trials wrote among the user's, moved away once their processes have ended."""

import os
import time
from pathlib import Path

import pytest

from autoconf_launch.core import SAVED, note, notes_of, take_in, take_in_all
from autoconf_launch.launcher.results import Fingerprint, ResultsPaths, open_folder

LONG_S = 1000.0
PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=("cpu",), versions=())


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    path = tmp_path / "results" / "z0_gas1_tmbspg1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_text("of a trial")
    return path


def take_notes(trial: Path, *paths: Path, age_s: float = 0.0, pid: int = 7) -> None:
    notes = notes_of(trial, pid)
    for path in paths:
        note(notes, path)
    with notes.open("a") as file:
        file.write('"/torn')
    os.utime(notes, (time.time() - age_s,) * 2)


def take(trial: Path) -> list[str]:
    return sorted(path.name for path in (trial / SAVED).rglob("*") if not path.is_dir())


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_was_noted_is_moved_below_the_trial(trial: Path, saved: Path, is_ours: bool) -> None:
    take_notes(trial, saved, saved.with_name("never_written.pt"))
    assert take_in(trial, is_ours=is_ours) == (saved,)
    assert (take(trial), saved.exists(), [*trial.glob("*.jsonl")]) == (["model.pt"], False, [])


def test_what_the_user_has_written_since_stays(trial: Path, saved: Path) -> None:
    take_notes(trial, saved, age_s=LONG_S)
    take_in(trial, is_ours=False)
    assert (take(trial), saved.read_text()) == ([], "of a trial")


def test_files_of_one_name_are_all_kept(trial: Path, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / saved.name
    other.parent.mkdir()
    other.touch()
    take_notes(trial, saved, other)
    take_in(trial, is_ours=True)
    assert take(trial) == ["model.pt"] * 2


def test_no_link_is_followed(trial: Path, saved: Path, tmp_path: Path) -> None:
    link, folder = tmp_path / "link.pt", tmp_path / "folder"
    link.symlink_to(saved)
    folder.symlink_to(tmp_path, target_is_directory=True)
    take_notes(trial, link, folder / saved.name)
    take_in(trial, is_ours=True)
    assert (take(trial), link.is_symlink(), saved.exists()) == (["link.pt"], False, True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint's, which the trial has made."""
    path = tmp_path / "out" / "checkpoint-1"
    (path / "unet").mkdir(parents=True)
    for name in ("config.json", "unet/model.bin"):
        (path / name).touch()
    return path


def test_a_folder_goes_with_all_that_is_in_it(trial: Path, folder: Path) -> None:
    take_notes(trial, folder)
    note(notes_of(trial, 8), folder.parent, if_empty=True)
    take_in(trial)
    assert (take(trial), folder.parent.exists()) == (["config.json", "model.bin"], False)


def test_a_folder_that_the_user_writes_to_stays_with_what_is_theirs(
    trial: Path, folder: Path
) -> None:
    own = folder.parent / "own.txt"
    own.touch()
    note(notes_of(trial, 7), folder.parent, if_empty=True)
    take_notes(trial, folder)
    take_in(trial)
    assert [*folder.parent.iterdir()] == [own]


def test_a_folder_stays_while_another_trial_may_write_to_it(trial: Path, folder: Path) -> None:
    other = trial.with_name("z1")
    other.mkdir()
    take_notes(trial, folder)
    take_notes(other, folder / "config.json")
    take_in(trial)
    assert [path.name for path in folder.rglob("*")] == ["unet", "config.json"]
    take_in(other)
    assert folder.exists()
    take_in_all(trial.parent)
    assert (take(trial), take(other), folder.exists()) == (["model.bin"], ["config.json"], False)


def test_a_process_takes_what_it_has_noted_and_no_other(
    trial: Path, folder: Path, saved: Path
) -> None:
    take_notes(trial, folder)
    take_notes(trial, saved, pid=8)
    take_in(trial, pid=8)
    assert (take(trial), (folder / "config.json").exists()) == (["model.pt"], True)


def test_a_study_takes_in_what_a_dead_controller_left(
    trial: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    with open_folder(paths_of(trial), PRINT, fresh=False) as folder:
        folder.journal.write_started(name=trial.name, number=0, attempt="a", handle=None)
    take_notes(trial, saved)
    with open_folder(paths_of(trial), PRINT, fresh=False):
        assert (take(trial), saved.exists()) == (["model.pt"], False)


def test_a_study_that_is_interrupted_takes_in_what_its_launches_left(
    trial: Path, saved: Path
) -> None:
    def interrupt() -> None:
        with open_folder(paths_of(trial), PRINT, fresh=False):
            take_notes(trial, saved)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert (take(trial), saved.exists()) == (["model.pt"], False)


def paths_of(trial: Path) -> ResultsPaths:
    return ResultsPaths(results=trial.parent, exps=trial.parent.with_name("exps"))


def test_a_link_to_the_trials_folder_holds_no_notes_of_others(trial: Path, saved: Path) -> None:
    trial.with_name("current").symlink_to(trial)
    notes = notes_of(trial, 7)
    note(notes, saved.parent / "made")
    (saved.parent / "made").mkdir()
    (saved.parent / "made" / "model.pt").write_text("of a trial")
    assert take_in(trial, pid=7) == (saved.parent / "made" / "model.pt",)
    assert not (saved.parent / "made").exists()
