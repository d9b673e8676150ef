"""Behaviour that only W&B has; tests/contracts cover all trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("wandb")

from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.trackers import TRACKERS
from autoconf_launch.launcher.trackers.base import TrackedStudy
from autoconf_launch.launcher.trackers.outlet import Outlet, finish_all
from autoconf_launch.launcher.trackers.wandb import LONGEST_NAME, shorten_name

from .read_back import read_wandb
from .told import STUDY

KEY = "0123456789abcdef" * 2 + "01234567"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user counts, and nothing leaves this machine."""
    monkeypatch.setenv("WANDB_BASE_URL", NOWHERE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def keep(folder: Path, key: str | None) -> list[Note]:
    folder.mkdir()
    key_file = folder.with_name("key")
    if key is not None:
        key_file.write_text(f"{key}\n")
    study = TrackedStudy(
        name="gpt3_126m",
        project=None,
        folder=str(folder),
        api_key_file=str(key_file) if key is not None else None,
    )
    outlet = Outlet("wandb", TRACKERS["wandb"], study, folder / "tracker.log")
    notes = [note for entry in STUDY for note in outlet.send(entry)]
    return [*notes, *finish_all([outlet], 60)]


def test_a_name_that_is_too_long_keeps_both_ends_and_what_tells_it_apart() -> None:
    middle = "_".join(f"knob_{number}" for number in range(30))
    names = [f"gpt3_5b_{middle}_{mbs}_{middle}_round1" for mbs in (1, 2)]
    fitted = [shorten_name(name) for name in names]
    assert len({*fitted}) == 2
    assert {len(name) for name in fitted} == {LONGEST_NAME}
    for name in fitted:
        assert name.startswith("gpt3_5b_")
        assert name.endswith("_round1")


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert shorten_name("gpt3_5b_mbs_1_round1") == "gpt3_5b_mbs_1_round1"


def holding(folder: Path, text: str) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def test_neither_the_key_nor_the_machine_is_in_the_files_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    keep(tmp_path / "kept", KEY)
    left = {path.name for path in (tmp_path / "kept/wandb").rglob("*")}
    assert holding(tmp_path, KEY) == [tmp_path / "key"]
    assert not left & {"requirements.txt", "wandb-metadata.json", "diff.patch", "output.log"}


def test_a_key_that_cannot_be_one_is_not_shown(tmp_path: Path) -> None:
    notes = keep(tmp_path / "kept", "wrong+secret")
    assert "wrong+secret" not in str(notes)
    assert holding(tmp_path, "wrong+secret") == [tmp_path / "key"]


def test_without_a_key_runs_are_kept_on_disk_with_one_warning(tmp_path: Path) -> None:
    notes = keep(tmp_path / "kept", None)
    (warning,) = (note.text for note in notes if note.warning)
    assert "send them later with: wandb sync" in warning
    assert len(read_wandb(tmp_path / "kept").runs) == 3


@pytest.mark.slow
def test_without_a_network_runs_are_kept_on_disk_with_one_warning(tmp_path: Path) -> None:
    notes = keep(tmp_path / "kept", KEY)
    (warning,) = (note.text for note in notes if note.warning)
    assert "it cannot be reached" in warning
    assert read_wandb(tmp_path / "kept").complete
