from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.core import RankResult, encode
from autoconf_launch.launcher.tuning import said_by_probes


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
