"""Files around a training: the user's, wherever they are, and the trial's."""

import shutil
from pathlib import Path

import pytest
import torch

from autoconf_launch.runtime.redirect import Surroundings

from .conftest import OF_USER, on_disk, put

PLACES = {
    "in the folder": "model.pt",
    "deep below it": "a/b/c/d/e/model.pt",
    "above it": "../model.pt",
    "by another way": "out/../model.pt",
    "behind a link": "linked/model.pt",
    "beside the results": "out/model.pt",
    "where nothing is looked for": ".venv/model.pt",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_back: None) -> Path:
    """The working directory, with results below ``out``."""
    folder = tmp_path / "work"
    (folder / "out" / "results").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(folder)
    return folder


def begin(*, trains: bool = True) -> Surroundings:
    made = Surroundings(own="out/results/trial")
    made.guard()
    if trains:
        made.training_begins()
    return made


@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_that_the_user_has_is_not_overwritten(here: Path, place: str) -> None:
    users = here / PLACES[place]
    users.parent.mkdir(parents=True, exist_ok=True)
    users.write_text(OF_USER)
    begin()
    torch.save(1, PLACES[place])
    assert on_disk(users) == OF_USER


@pytest.mark.parametrize("place", PLACES)
def test_one_that_the_training_makes_is_put_away(here: Path, place: str) -> None:
    path = here / PLACES[place]
    path.parent.mkdir(parents=True, exist_ok=True)
    surroundings = begin()
    for number in range(2):
        torch.save(number, path)
    assert torch.load(path) == 1
    surroundings.new()
    assert not path.exists()


def test_a_folder_of_checkpoints_that_the_user_has_is_not_removed(here: Path) -> None:
    folder = here / "out" / "checkpoint-10"
    folder.mkdir()
    (folder / "optimizer.pt").write_text(OF_USER)
    begin()
    shutil.rmtree("out/checkpoint-10")
    assert on_disk(folder / "optimizer.pt") == OF_USER


def test_the_trials_own_folder_is_not_left_behind(here: Path) -> None:
    surroundings = begin()
    (here / "out" / "results" / "trial").mkdir(exist_ok=True)
    put(here / "log.txt")  # not by a call of Python's
    assert surroundings.new() == ("log.txt",)


def test_what_is_written_before_the_training_is_left_and_named(here: Path) -> None:
    log = here / "train.log"
    log.write_text(OF_USER)
    surroundings = begin(trains=False)
    with log.open("a") as file:
        file.write("a line")
    assert surroundings.new() == ("train.log",)


def test_a_checkpoint_takes_its_folder_along_wherever_it_is(here: Path) -> None:
    surroundings = begin(trains=False)
    folder = here.parent / "output" / "of_today"
    folder.mkdir(parents=True)
    (folder / "args.yaml").write_text("before")
    surroundings.training_begins()
    (folder.parent / "results.json").write_text("{}")
    torch.save(1, folder / "last.pt")
    Path(folder / "best.pt").hardlink_to(folder / "last.pt")
    (folder / "summary.csv").write_text("after")
    assert surroundings.new() == ()
    assert not folder.parent.exists()


def test_files_beside_a_checkpoint_of_the_users_stay_as_they_are(here: Path) -> None:
    folder = here.parent / "output"
    for name in ("model.pt", "config.json"):
        put(folder / name)
    begin()
    torch.save(1, folder / "model.pt")
    (folder / "config.json").write_text("of a trial")
    assert [on_disk(path) for path in folder.iterdir()] == [OF_USER, OF_USER]
    assert (folder / "config.json").read_text() == "of a trial"


@pytest.mark.parametrize("is_read", [False, True])
def test_a_folder_made_before_the_training_is_put_away_unless_it_was_read(
    here: Path, is_read: bool
) -> None:
    surroundings = begin(trains=False)
    Path("runs/first").mkdir(parents=True)
    Path("runs/first/words.txt").write_text("a b c")
    shutil.copy2(Path(__file__), "runs/first/config.yaml")
    if is_read:  # data that the script prepared and uses
        assert Path("runs/first/words.txt").read_text() == "a b c"
    surroundings.training_begins()
    assert surroundings.new() == (("runs/",) if is_read else ())
    assert Path("runs").exists() == is_read


def test_a_folder_stays_if_the_training_never_began(here: Path) -> None:
    surroundings = begin(trains=False)
    Path("runs").mkdir()
    Path("runs/words.txt").write_text("a b c")
    assert surroundings.new() == ("runs/",)
