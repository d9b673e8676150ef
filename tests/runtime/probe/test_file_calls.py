"""Files of the user's under a training that writes, renames and removes what it likes."""

import builtins
import gzip
import io
import json
import os
import pickle
import posix
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from autoconf_launch.runtime.redirect.saved_files import SavedFiles

from .conftest import OF_USER, in_trial, on_disk, put

RENAMES: dict[str, Callable[[Path, Path], object]] = {
    "os.replace": lambda source, target: os.replace(source, target),  # noqa: PTH105
    "os.rename": lambda source, target: os.rename(source, dst=target),  # noqa: PTH104
    "shutil.move": lambda source, target: shutil.move(source, target),
    "Path.replace": lambda source, target: source.replace(target),
}


@pytest.mark.parametrize("how", RENAMES)
def test_a_new_file_does_not_become_the_users(saved: SavedFiles, users: Path, how: str) -> None:
    saved.begin()
    torch.save(1, users.with_suffix(".tmp"))
    RENAMES[how](users.with_suffix(".tmp"), users)
    saved.paths.put_away()
    assert on_disk(users) == OF_USER
    assert (in_trial(users.parent), sorted(users.parent.glob("*.*"))) == (["model.pt"], [users])


def test_a_new_file_under_its_last_name_is_put_away(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, tmp_path / "new.tmp")
    os.replace(tmp_path / "new.tmp", str(tmp_path / "new.pt"))  # noqa: PTH105
    assert torch.load(tmp_path / "new.pt") == 1
    saved.paths.put_away()
    assert not [*tmp_path.glob("new.*")]


def test_what_was_written_instead_of_the_users_is_what_is_renamed(
    saved: SavedFiles, users: Path
) -> None:
    saved.begin()
    torch.save(1, users)
    users.rename(users.with_name("last.pt"))
    assert on_disk(users) == OF_USER
    assert torch.load(users.with_name("last.pt")) == 1


def test_a_file_of_the_user_is_copied_where_the_script_renames_it(
    saved: SavedFiles, users: Path
) -> None:
    saved.begin()
    users.rename(users.with_name("kept.pt"))
    assert (on_disk(users), on_disk(users.with_name("kept.pt"))) == (OF_USER, OF_USER)
    saved.paths.put_away()
    assert (on_disk(users), users.with_name("kept.pt").exists()) == (OF_USER, False)


def test_the_users_checkpoint_is_not_opened_for_new_bytes(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    for opened in (builtins.open, io.open):
        with opened(users, "wb") as file:
            torch.save(1, file)
    with users.open("wb") as file:
        file.write(b"1")
    assert on_disk(users) == OF_USER
    assert in_trial(users.parent) == ["model.pt"]


def test_a_copy_over_the_users_checkpoint_is_not_made(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    torch.save(1, users.with_name("new.pt"))
    shutil.copyfile(users.with_name("new.pt"), users)
    assert on_disk(users) == OF_USER


def test_other_opens_are_as_ever(saved: SavedFiles, users: Path, tmp_path: Path) -> None:
    saved.begin()
    assert users.read_text() == OF_USER
    (tmp_path / "log.txt").write_bytes(b"words")
    assert (tmp_path / "log.txt").read_text() == "words"


def test_what_stands_before_a_call_is_saved_by_its_name(saved: SavedFiles) -> None:
    assert pickle.loads(pickle.dumps((open, os.replace))) == (open, os.replace)


def test_what_was_saved_under_the_users_name_is_what_is_read(
    saved: SavedFiles, users: Path
) -> None:
    saved.begin()
    torch.save({"step": torch.ones(2)}, users)
    with users.open("rb") as file:
        assert torch.load(file)["step"].sum() == 2
    for mapped in (False, True):
        assert torch.load(users, mmap=mapped)["step"].sum() == 2


def test_files_of_one_name_in_two_folders_are_kept_apart(
    saved: SavedFiles, theirs: set[Path], tmp_path: Path
) -> None:
    paths = [tmp_path / folder / "optimizer.pt" for folder in ("checkpoint-1", "checkpoint-2")]
    theirs.update(paths)
    saved.begin()
    for number, path in enumerate(paths):
        torch.save(number, path)
    assert [torch.load(path) for path in paths] == [0, 1]


REMOVALS: dict[str, Callable[[Path], object]] = {
    "os.remove": lambda path: os.remove(path),  # noqa: PTH107
    "os.unlink": lambda path: os.unlink(str(path)),  # noqa: PTH108
    "Path.unlink": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", REMOVALS)
def test_the_users_checkpoint_is_not_removed(saved: SavedFiles, users: Path, how: str) -> None:
    saved.begin()
    torch.save(1, users)
    REMOVALS[how](users)
    assert on_disk(users) == OF_USER
    assert in_trial(users.parent) == []


def test_what_the_trial_saved_is_removed(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, tmp_path / "new.pt")
    (tmp_path / "new.pt").unlink()
    assert not (tmp_path / "new.pt").exists()


@pytest.fixture
def folder(theirs: set[Path], tmp_path: Path) -> Path:
    file = put(tmp_path / "checkpoint-10" / "config.json")
    theirs.update((file, file.parent))
    return file.parent


def test_a_folder_of_the_users_stays_and_what_the_trial_made_in_it_goes(
    folder: Path, saved: SavedFiles
) -> None:
    saved.begin()
    (folder / "new.txt").write_text("of a trial")
    shutil.rmtree(folder)
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_a_folder_of_the_users_can_be_removed_and_made_anew(
    folder: Path, saved: SavedFiles
) -> None:
    saved.begin()
    shutil.rmtree(folder)
    folder.mkdir()
    with (folder / "config.json").open("x") as file:
        file.write("of a trial")
    text = (folder / "config.json").read_text()
    assert (on_disk(folder / "config.json"), text) == (OF_USER, "of a trial")


def test_a_folder_that_is_there_cannot_be_made(folder: Path, saved: SavedFiles) -> None:
    saved.begin()
    with pytest.raises(FileExistsError):
        folder.mkdir()


def test_a_folder_takes_the_place_of_one_of_the_users(
    folder: Path, saved: SavedFiles, tmp_path: Path
) -> None:
    saved.begin()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("of a trial")
    with pytest.raises(OSError, match="not empty"):
        (tmp_path / "new").rename(folder)
    shutil.rmtree(folder)
    (tmp_path / "new").rename(folder)
    text = (folder / "config.json").read_text()
    assert (on_disk(folder / "config.json"), text) == (OF_USER, "of a trial")


def test_removals_before_the_training_are_as_ever(saved: SavedFiles, users: Path) -> None:
    users.unlink()
    assert not users.exists()


def test_a_checkpoint_of_the_users_over_another_is_copied_for_the_trial(
    saved: SavedFiles, users: Path, theirs: set[Path]
) -> None:
    best = put(users.with_name("best.pt"), "the best")
    theirs.add(best)
    saved.begin()
    best.replace(users)
    assert (on_disk(users), on_disk(best), users.read_text()) == (OF_USER, "the best", "the best")


def test_a_rename_that_fails_leaves_the_users_checkpoint_to_be_read(
    saved: SavedFiles, users: Path
) -> None:
    saved.begin()
    with pytest.raises(FileNotFoundError):
        users.with_name("nowhere.pt").replace(users)
    assert users.read_text() == OF_USER


@pytest.fixture
def others(users: Path, theirs: set[Path]) -> Path:
    """A file of the user's whose name does not say what it is."""
    path = put(users.with_name("model.state"))
    theirs.add(path)
    return path


OPENS: dict[str, Callable[[Path, str], Any]] = {
    "open": lambda path, mode: open(path, mode),  # noqa: PTH123, SIM115
    "gzip.open": lambda path, mode: gzip.open(path, mode),  # noqa: SIM115
    "Path.open": lambda path, mode: path.open(mode),
}


@pytest.mark.parametrize("how", OPENS)
def test_any_file_that_is_opened_for_a_checkpoint_is_the_trials(
    saved: SavedFiles, others: Path, how: str
) -> None:
    saved.begin()
    with OPENS[how](others, "wb") as file:
        torch.save({"step": 2}, file)
    assert (on_disk(others), in_trial(others.parent)) == (OF_USER, ["model.state"])
    with OPENS[how](others, "rb") as file:
        assert torch.load(file) == {"step": 2}


WRITES: dict[str, Callable[[Path], object]] = {
    "w": lambda path: path.write_text("new"),
    "wb": lambda path: path.write_bytes(b"new"),
    "w+": lambda path: path.open("w+").write("new"),
    "copy": lambda path: shutil.copyfile(put(path.with_name("source"), "new"), path),
}


@pytest.mark.parametrize("how", WRITES)
def test_no_file_of_the_users_is_written(saved: SavedFiles, others: Path, how: str) -> None:
    saved.begin()
    WRITES[how](others)
    assert (on_disk(others), others.read_text()) == (OF_USER, "new")


def test_lines_are_added_to_a_copy_of_the_users_file(saved: SavedFiles, others: Path) -> None:
    saved.begin()
    for number in range(2):
        with others.open("a") as file:
            file.write(str(number))
    assert (on_disk(others), others.read_text()) == (OF_USER, f"{OF_USER}01")


def test_data_that_is_mapped_into_memory_is_not_copied(saved: SavedFiles, others: Path) -> None:
    saved.begin()
    with others.open("r+b") as file:
        file.write(b"IN")
    assert on_disk(others) == f"IN{OF_USER[2:]}"
    assert saved.paths.leftovers() == [others]


def test_a_device_is_written_as_ever(saved: SavedFiles) -> None:
    saved.begin()
    with Path(os.devnull).open("w") as file:
        file.write("words")
    assert not in_trial(Path.cwd())


def test_all_files_of_a_folder_that_the_training_makes_are_put_away(
    saved: SavedFiles, tmp_path: Path
) -> None:
    saved.begin()
    folder = tmp_path / "out" / "checkpoint-2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    torch.save(1, folder / "model.pt")
    os.close(posix.open(folder / "of_a_library", os.O_CREAT))
    saved.paths.put_away()
    assert in_trial(tmp_path) == ["config.json", "model.pt", "of_a_library"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["link_to", "symlink_to"])
def test_links_of_the_training_are_put_away_and_none_changes_the_users_file(
    saved: SavedFiles, users: Path, name: str
) -> None:
    saved.begin()
    last = users.with_name("last.pt")
    if name == "link_to":
        last.hardlink_to(users)
    else:
        last.symlink_to(users.name)
    assert last.read_text() == OF_USER
    torch.save(1, last)
    saved.paths.put_away()
    assert (on_disk(users), last.is_symlink(), last.exists()) == (OF_USER, False, False)


def test_a_link_takes_the_place_of_one_of_the_users(
    saved: SavedFiles, theirs: set[Path], tmp_path: Path
) -> None:
    latest = tmp_path / "latest.pt"
    latest.symlink_to("model.pt")
    theirs.add(latest)
    saved.begin()
    torch.save(1, tmp_path / "new.pt")
    latest.unlink()
    latest.symlink_to("new.pt")
    assert (str(latest.readlink()), torch.load(latest)) == ("model.pt", 1)


def test_files_of_a_checkpoint_in_parts_are_put_away(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    for name in ("__0_0.distcp", ".metadata.tmp"):
        (tmp_path / name).write_bytes(b"part")
    (tmp_path / ".metadata.tmp").rename(tmp_path / ".metadata")
    saved.paths.put_away()
    assert in_trial(tmp_path) == [".metadata", "__0_0.distcp"]


def test_the_index_of_the_users_checkpoint_stays(
    saved: SavedFiles, theirs: set[Path], tmp_path: Path
) -> None:
    index = put(tmp_path / ".metadata")
    theirs.add(index)
    saved.begin()
    (tmp_path / ".metadata.tmp").write_bytes(b"part")
    index.unlink()
    (tmp_path / ".metadata.tmp").rename(index)
    assert (on_disk(index), index.read_text()) == (OF_USER, "part")


def test_a_process_puts_away_what_it_made_and_no_other(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, tmp_path / "new.pt")
    if (child := os.fork()) == 0:
        saved.paths.put_away()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "new.pt").exists()


def _by_descriptor(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"1")
    os.close(descriptor)


def _beside_a_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    descriptor = os.open("new.tmp", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
    os.write(descriptor, b"1")
    os.close(descriptor)
    os.replace("new.tmp", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)


def _in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"1")


def _cut_open(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.ftruncate(descriptor, 1)
    os.close(descriptor)


def _pickle(path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump([1], file)


OVERWRITES: dict[str, Callable[[Path], object]] = {
    "r+b": _in_place,
    "os.open": _by_descriptor,
    "os.truncate": lambda path: os.truncate(path, 1),
    "os.ftruncate": _cut_open,
    "renamed by descriptor": _beside_a_folder,
    "pickle.dump": _pickle,
    "np.savez": lambda path: np.savez(path.open("wb"), a=np.ones(2)),
    "np.save": lambda path: np.save(path.open("wb"), np.ones(2)),
    "JSON": lambda path: path.write_text(json.dumps({"a": 1})),
    "unlinked by descriptor": lambda path: os.unlink(
        path.name, dir_fd=os.open(path.parent, os.O_RDONLY)
    ),
}


@pytest.mark.parametrize("how", OVERWRITES)
def test_no_known_call_changes_the_users_checkpoint(
    saved: SavedFiles, users: Path, how: str
) -> None:
    saved.begin()
    OVERWRITES[how](users)
    assert on_disk(users) == OF_USER
    saved.paths.put_away()
    assert on_disk(users) == OF_USER


def test_what_a_descriptor_wrote_is_read_by_one(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    _by_descriptor(users)
    descriptor = os.open(users, os.O_RDONLY)
    assert os.read(descriptor, 10) == b"1"
    os.close(descriptor)
    assert users.read_bytes() == b"1"


def test_a_folder_is_opened_where_the_trial_has_files_of_it(
    saved: SavedFiles, users: Path
) -> None:
    other = put(users.with_name("other.pt"))
    saved.begin()
    users.write_bytes(b"1")
    for _ in range(2):
        folder = os.open(users.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        assert os.read(os.open(other.name, os.O_RDONLY, dir_fd=folder), 99) == OF_USER.encode()
        assert os.read(os.open(users.name, os.O_RDONLY, dir_fd=folder), 9) == b"1"
        os.close(folder)
    assert on_disk(users) == OF_USER


def test_a_name_in_bytes_is_a_name(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    name = os.fsencode(users)
    os.write(os.open(name, os.O_WRONLY), b"N")
    os.truncate(name, 1)
    with open(name, "ab") as file:  # noqa: PTH123
        file.write(b"1")
    Path(f"{users}.tmp").write_bytes(b"2")
    os.replace(name + b".tmp", name)  # noqa: PTH105
    os.remove(name)  # noqa: PTH107
    assert on_disk(users) == OF_USER
