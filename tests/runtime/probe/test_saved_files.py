"""Checkpoints of a trial next to the user's."""

import io
import json
import os
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_parts

from autoconf_launch.core import notes_of
from autoconf_launch.core.saved_paths import NOTES
from autoconf_launch.runtime.redirect.saved_files import SavedFiles

from .conftest import OF_USER, in_trial, on_disk


def test_the_users_own_checkpoint_is_not_overwritten(saved: SavedFiles, users: Path) -> None:
    saved.begin()
    torch.save(1, users)
    assert on_disk(users) == OF_USER
    assert in_trial(users.parent) == ["model.pt"]


def test_a_new_one_is_there_until_it_is_put_away(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    torch.save(1, str(tmp_path / "new.pt"))
    assert torch.load(tmp_path / "new.pt") == 1
    saved.paths.put_away()
    assert not (tmp_path / "new.pt").exists()
    assert in_trial(tmp_path) == ["new.pt"]


def test_paths_are_noted_before_they_are_written(saved: SavedFiles, tmp_path: Path) -> None:
    saved.begin()
    with pytest.raises(RuntimeError):
        torch.save(1, tmp_path / "nowhere" / "new.pt")
    noted = notes_of(tmp_path / "trial", os.getpid()).read_text().splitlines()
    assert [*map(json.loads, noted)] == [str(tmp_path / "nowhere" / "new.pt")]
    saved.paths.put_away()
    assert not [*(tmp_path / "trial").glob(NOTES)]


def test_what_is_saved_before_the_training_stays(saved: SavedFiles, tmp_path: Path) -> None:
    torch.save(1, tmp_path / "data.pt")
    saved.begin()
    saved.paths.put_away()
    assert (tmp_path / "data.pt").exists()


@dataclass
class Heard:
    """Sizes of what was saved; a beginning is 0."""

    sizes: list[int] = field(default_factory=list)

    def saves(self) -> None:
        self.sizes.append(0)

    def on_save(self, size_bytes: int) -> None:
        self.sizes[-1] = size_bytes


def test_tensors_that_are_saved_are_heard_with_their_size(
    saved: SavedFiles, tmp_path: Path
) -> None:
    heard = Heard()
    saved.begin()
    saved.listen(heard)
    torch.save({"model": {"weight": torch.ones(1000)}}, tmp_path / "new.pt")
    with (tmp_path / "open.pt").open("wb") as file:
        torch.save(obj=torch.ones(1000), f=file)
    assert all(size > 4000 for size in heard.sizes)
    assert len(heard.sizes) == 2


class Total(Heard):
    """All bytes, of saves inside of saves, too."""

    def on_save(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)


def test_a_checkpoint_in_parts_is_heard_with_its_size(saved: SavedFiles, tmp_path: Path) -> None:
    heard = Total()
    saved.begin()
    saved.listen(heard)
    state = {"weight": torch.ones(1000), "bias": torch.ones(1000)}
    save_parts(state, checkpoint_id=tmp_path / "parts")
    assert 8000 < sum(heard.sizes) < 16000


@pytest.mark.parametrize(
    ("what", "place"),
    [({"epoch": 1}, "new.pt"), ([1, 2], "new.pt"), (torch.ones(10), io.BytesIO())],
    ids=["no tensors", "numbers", "a copy in memory"],
)
def test_what_is_no_checkpoint_is_not_heard(saved: SavedFiles, what: object, place: Any) -> None:
    heard = Heard()
    saved.begin()
    saved.listen(heard)
    torch.save(what, place)
    assert heard.sizes == []


def test_an_error_of_whoever_listens_is_none_of_the_scripts(
    saved: SavedFiles, tmp_path: Path
) -> None:
    class Deaf(Heard):
        def saves(self) -> None:
            raise RuntimeError

    saved.begin()
    saved.listen(Deaf())
    torch.save(torch.ones(10), tmp_path / "new.pt")
    assert (tmp_path / "new.pt").exists()


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a ``safetensors.torch`` that writes a line, once the probe listens."""
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").touch()
    text = """
def save_file(tensors, filename, metadata=None):
    open(filename, "w").write("x")
def load_file(filename, device="cpu"):
    return filename
"""
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
    saved.begin()
    saved.listen(heard)
    module.save_file({"weight": torch.ones(10)}, filename=str(users))
    assert on_disk(users) == OF_USER
    assert (heard.sizes, in_trial(users.parent)) == ([1], ["model.pt"])
    assert Path(module.load_file(users)).is_relative_to(users.parent / "trial" / "saved")


def test_what_a_tokenizer_writes_into_a_folder_of_the_trial_is_put_away(
    saved: SavedFiles, tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")  # its files are written by Rust
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    folder = tmp_path / "out"
    folder.mkdir()
    saved.paths.made_folder(folder)
    saved.begin()
    checkpoint = folder / "checkpoint-1"
    checkpoint.mkdir()
    saved.paths.made_folder(checkpoint)
    torch.save(1, checkpoint / "model.pt")
    tokenizer.save_pretrained(str(folder))
    assert (folder / "tokenizer.json").exists()
    saved.paths.put_away()
    assert not folder.exists()
    assert "tokenizer.json" in in_trial(tmp_path)
