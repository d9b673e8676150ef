"""A tune leaves the user's files as they are, and no files that it does not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.slow
SCRIPT = str(Path(__file__).parent / "scripts" / "files_around.py")
ONE = ("--num_gpus=1", "--max-parallel-trials=1", "--knob=train_micro_batch_size_per_gpu=[8]")
QUICK = (*ONE, "--end_profile_step=5", "--allow-global-batch-change")
USERS = ("config.json", "model.bin", "history.txt")


@pytest.fixture
def users(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of the user's, with what belongs to it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = place.folder / "work" / "checkpoint"
    folder.mkdir(parents=True)
    for name in USERS:
        (folder / name).write_text("of a long training")
    return folder


def tune(place: Place, *flags: str, words: tuple[str, ...] = ()) -> tuple[int, str]:
    argv = ("--autotuning=tune", *QUICK, *flags, SCRIPT, *words)
    return Place(place.folder / "work", place.mark).run(*argv)


def intact(users: Path) -> bool:
    found = {path.name: path.read_text() for path in users.iterdir()}
    return found == dict.fromkeys(USERS, "of a long training")


def test_a_tune_with_a_soak_to_the_scripts_own_end_leaves_a_log_and_names_it(
    place: Place, users: Path
) -> None:
    code, output = tune(place, "--soak_steps=35")
    assert code == 0, output
    assert "35 steps" in output
    assert "the script finished normally" in output
    assert intact(users)
    left = {path.name for path in users.parent.iterdir() if "autotuning" not in path.name}
    assert left == {"checkpoint", "train.log"}
    assert not (place.folder / "output").exists()
    assert "since the tune began: train.log; " in output
    summary = (users.parent / "autotuning_results" / "summary.txt").read_text()
    assert "began: train.log; " in summary


def test_a_training_without_an_optimizer_leaves_the_users_files(place: Place, users: Path) -> None:
    code, output = tune(place, "--soak_steps=0", words=("--by_hand",))
    assert (code, "its weights changed after every backward pass" in output) == (0, True), output
    assert intact(users)
    assert not (place.folder / "output").exists()
