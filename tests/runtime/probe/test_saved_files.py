"""Checkpoints of a trial beside those of the user."""

from __future__ import annotations

import builtins
import io
import json
import os
import pathlib
import pickle
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from autoconf_launch.core.rank import NOTES_OF_SAVED, notes_of_saved
from autoconf_launch.runtime.probing.saved_files import SavedFiles


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_text("of a long training")
    return path


@pytest.fixture
def saved(tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch) -> SavedFiles:
    monkeypatch.setattr(torch, "save", torch.save)  # these are put back afterwards
    for module, name in ((os, "replace"), (os, "rename"), (io, "open"), (builtins, "open")):
        monkeypatch.setattr(module, name, getattr(module, name))
        if accessor := getattr(pathlib, "_NormalAccessor", None):  # of Python 3.10
            monkeypatch.setattr(accessor, name, getattr(accessor, name))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made = SavedFiles(str(tmp_path / "trial"), lambda path: path == users)
    made.install()
    return made


def in_trial(folder: Path) -> list[str]:
    return sorted(path.name.partition("_")[2] for path in (folder / "trial" / "saved").glob("*"))


def test_the_users_own_checkpoint_is_not_overwritten(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    torch.save(1, users)
    assert users.read_text() == "of a long training"
    assert in_trial(users.parent) == ["model.pt"]


def test_a_new_one_is_there_until_it_is_put_away(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, str(tmp_path / "new.pt"))
    assert torch.load(tmp_path / "new.pt") == 1
    saved.put_away()
    assert not (tmp_path / "new.pt").exists()
    assert in_trial(tmp_path) == ["new.pt"]


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
    saved.put_away()
    assert users.read_text() == "of a long training"
    assert (in_trial(users.parent), sorted(users.parent.glob("*.*"))) == (["model.pt"], [users])


def test_a_new_file_under_its_last_name_is_put_away(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, tmp_path / "new.tmp")
    os.replace(tmp_path / "new.tmp", str(tmp_path / "new.pt"))  # noqa: PTH105
    assert torch.load(tmp_path / "new.pt") == 1
    saved.put_away()
    assert not [*tmp_path.glob("new.*")]


def test_what_was_written_instead_of_the_users_is_what_is_renamed(
    saved: SavedFiles, users: Path
) -> None:
    saved.begin()
    torch.save(1, users)
    users.rename(users.with_name("last.pt"))
    assert users.read_text() == "of a long training"
    assert torch.load(users.with_name("last.pt")) == 1


def test_files_of_the_user_are_renamed_as_ever(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    users.rename(users.with_name("kept.pt"))
    saved.put_away()
    assert users.with_name("kept.pt").read_text() == "of a long training"


def test_the_users_checkpoint_is_not_opened_for_new_bytes(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    for opened in (builtins.open, io.open):
        with opened(users, "wb") as file:
            torch.save(1, file)
    with users.open("wb") as file:
        file.write(b"1")
    assert users.read_text() == "of a long training"
    assert in_trial(users.parent) == ["model.pt"]


def test_a_copy_over_the_users_checkpoint_is_not_made(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    torch.save(1, users.with_name("new.pt"))
    shutil.copyfile(users.with_name("new.pt"), users)
    assert users.read_text() == "of a long training"


def test_other_opens_are_as_ever(saved: SavedFiles, users: Path, tmp_path: Path) -> None:
    users.write_bytes(b"before the training")
    saved.begin()
    assert users.read_bytes() == b"before the training"
    (tmp_path / "log.txt").write_bytes(b"words")
    assert (tmp_path / "log.txt").read_text() == "words"


def test_what_stands_before_a_call_is_saved_by_its_name(saved: SavedFiles) -> None:
    assert pickle.loads(pickle.dumps((open, os.replace))) == (open, os.replace)


def test_paths_are_noted_before_they_are_written(saved: SavedFiles, tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    saved.begin()
    with pytest.raises(RuntimeError):
        torch.save(1, tmp_path / "nowhere" / "new.pt")
    noted = (tmp_path / "trial" / notes_of_saved(os.getpid())).read_text().splitlines()
    assert [*map(json.loads, noted)] == [str(tmp_path / "nowhere" / "new.pt")]
    saved.put_away()
    assert not [*(tmp_path / "trial").glob(NOTES_OF_SAVED)]


def test_what_is_saved_before_the_training_stays(saved: SavedFiles, tmp_path: Path) -> None:
    torch.save(1, tmp_path / "data.pt")
    saved.begin()
    saved.put_away()
    assert (tmp_path / "data.pt").exists()


@dataclass
class Heard:
    """Sizes of what was saved; a beginning is 0."""

    sizes: list[int] = field(default_factory=list)

    def saves(self) -> None:
        self.sizes.append(0)

    def saved(self, size_bytes: int) -> None:
        self.sizes[-1] = size_bytes


def test_tensors_that_are_saved_are_heard_with_their_size(
    saved: SavedFiles, tmp_path: Path
) -> None:
    heard = Heard()
    saved.begin(heard)
    torch.save({"model": {"weight": torch.ones(1000)}}, tmp_path / "new.pt")
    with (tmp_path / "open.pt").open("wb") as file:
        torch.save(obj=torch.ones(1000), f=file)
    assert all(size > 4000 for size in heard.sizes)
    assert len(heard.sizes) == 2


@pytest.mark.parametrize("what", [{"epoch": 1}, [1, 2]])
def test_what_holds_no_tensors_is_not_heard(
    saved: SavedFiles, tmp_path: Path, what: object
) -> None:
    heard = Heard()
    saved.begin(heard)
    torch.save(what, tmp_path / "new.pt")
    assert heard.sizes == []


def test_a_copy_in_memory_is_not_heard(saved: SavedFiles) -> None:
    heard = Heard()
    saved.begin(heard)
    torch.save(torch.ones(10), io.BytesIO())
    assert heard.sizes == []


def test_an_error_of_whoever_listens_is_none_of_the_scripts(
    saved: SavedFiles, tmp_path: Path
) -> None:
    class Deaf(Heard):
        def saves(self) -> None:
            raise RuntimeError

    saved.begin(Deaf())
    torch.save(torch.ones(10), tmp_path / "new.pt")
    assert (tmp_path / "new.pt").exists()


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports ``safetensors.torch``, one that writes a line, once the probe listens."""
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").touch()
    text = "def save_file(tensors, filename, metadata=None):\n    open(filename, 'w').write('x')\n"
    (tmp_path / "safetensors" / "torch.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield lambda: import_module("safetensors.torch")
    for name in ("safetensors", "safetensors.torch"):
        sys.modules.pop(name, None)


def test_other_writers_are_followed_once_they_are_imported(
    writer: Any, saved: SavedFiles, users: Path
) -> None:
    heard, module = Heard(), writer()
    saved.begin(heard)
    module.save_file({"weight": torch.ones(10)}, filename=str(users))
    assert users.read_text() == "of a long training"
    assert (heard.sizes, in_trial(users.parent)) == ([1], ["model.pt"])
