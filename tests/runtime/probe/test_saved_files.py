"""Checkpoints of a trial beside those of the user."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autoconf_launch.runtime.probing.saved_files import SavedFiles


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_text("of a long training")
    return path


@pytest.fixture
def saved(tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch) -> SavedFiles:
    monkeypatch.setattr(torch, "save", torch.save)  # is put back afterwards
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


def test_what_is_saved_before_the_training_stays(saved: SavedFiles, tmp_path: Path) -> None:
    torch.save(1, tmp_path / "data.pt")
    saved.begin()
    saved.put_away()
    assert (tmp_path / "data.pt").exists()
