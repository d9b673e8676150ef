"""Checkpoints of the user's that change while trials run are named."""

from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.core import RankResult, encode
from autoconf_launch.launcher.events import Event, ModelProfiled, Note
from autoconf_launch.launcher.tuning import Checkpoints, said_by_probes, watching_checkpoints


def test_what_changed_or_went_is_named_once(tmp_path: Path) -> None:
    for name in ("kept.pt", "cut.ckpt", "gone.safetensors", "text.txt", "deep/a.pt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the user")
    own = tmp_path / "results"
    own.mkdir()
    seen = Checkpoints(tmp_path, (own,))
    assert seen.list_changed() == ()
    (tmp_path / "cut.ckpt").write_text("of")
    (tmp_path / "gone.safetensors").unlink()
    for name in ("text.txt", "new.pt", "results/model.pt", "deep/b.pt"):
        (tmp_path / name).write_text("of the trial")
    assert seen.list_changed() == ("cut.ckpt", "gone.safetensors")
    (tmp_path / "new.pt").unlink()
    assert seen.list_changed() == ()


def test_the_user_is_told_after_the_launch(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_text("of the user")
    said: list[Event] = []
    tell = watching_checkpoints(said.append, Checkpoints(tmp_path))
    done = ModelProfiled(spec=None, wall_s=1.0)
    tell(done)
    assert said == [done]
    model.write_text("of a child process")
    tell(done)
    note = said[-1]
    assert isinstance(note, Note)
    assert note.warning
    assert note.text.startswith("model.pt changed while the profile run ran")


def leave(results: Path, trial: str, *left: str, notes: tuple[str, ...] = ()) -> None:
    result = RankResult(
        rank=0, world_size=1, attempt="a", ended_unix_s=0.0, left_behind=left, notes=notes
    )
    (results / trial).mkdir(parents=True)
    (results / trial / "result.json").write_text(json.dumps(encode(result)))


def test_what_trials_left_is_named_once_by_its_outermost_folder(tmp_path: Path) -> None:
    (tmp_path / "runs" / "b").mkdir(parents=True)
    leave(tmp_path / "results", "t0", "runs/")
    leave(tmp_path / "results", "t1", "runs/b/")
    (sentence,) = said_by_probes(tmp_path / "results", tmp_path)
    assert "began: runs; " in sentence


def test_what_is_gone_by_now_is_not_named(tmp_path: Path) -> None:
    leave(tmp_path / "results", "t0", "lock")
    assert said_by_probes(tmp_path / "results", tmp_path) == ()


def test_many_paths_are_counted(tmp_path: Path) -> None:
    names = [f"checkpoint-{number}" for number in range(7)]
    for name in names:
        (tmp_path / name).mkdir()
    leave(tmp_path / "results", "t0", *names)
    (sentence,) = said_by_probes(tmp_path / "results", tmp_path)
    assert "checkpoint-4 and 2 more" in sentence


def test_a_remark_of_several_trials_is_made_once(tmp_path: Path) -> None:
    for trial in ("t0", "t1"):
        leave(tmp_path / "results", trial, notes=("torch.compile runs.",))
    assert said_by_probes(tmp_path / "results", tmp_path) == ("torch.compile runs.",)


def test_a_torn_result_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "results" / "t0").mkdir(parents=True)
    (tmp_path / "results" / "t0" / "result.json").write_text("{")
    assert said_by_probes(tmp_path / "results", tmp_path) == ()
