from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.strategies import PastTime
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.results import read_past, remember
from autoconf_launch.launcher.results.own_files import past_file

ONE = PastTime(candidate=Candidate(layout=Layout(micro_batch=2)), step_s=0.5)
WORD = PastTime(candidate=Candidate(layout=Layout(), extras=(("name", "of mine"),)), step_s=0.5)


def written() -> Path:
    remember("key", [ONE])
    path = past_file()
    assert path is not None
    return path


def keep(key: str) -> tuple[PastTime, ...]:
    return tuple(replace(one, study="") for one in read_past(key))


def test_what_is_remembered_is_read_by_its_key_alone() -> None:
    written()
    assert keep("key") == (ONE,)
    assert read_past("another") == ()


def test_times_of_one_tune_share_a_word_that_no_other_has() -> None:
    remember("key", [ONE, ONE])
    remember("key", [ONE])
    words = [one.study for one in read_past("key")]
    assert words[0] == words[1] != words[2]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "7",
        '{"key": "key"}',
        '{"key": "key", "time": {"candidate": {"layout": {}}, "step_s": -1.0}}',
        '{"key": "key", "time": {"candidate": {"layout": {}}, "step_s": "NaN"}}',
        '{"key": "key", "time": {"candidate": {"layout": {"micro_batch": "x"}}, "step_s": 1.0}}',
        "[" * 5000,
        "\\u0000\\ud800",
    ],
)
def test_a_line_that_cannot_be_read_is_skipped(line: str) -> None:
    path = written()
    path.write_text(line + "\n" + path.read_text())
    assert keep("key") == (ONE,)


def test_a_file_that_others_may_write_is_not_read() -> None:
    path = written()
    path.chmod(0o622)
    assert read_past("key") == ()


def test_a_link_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = written()
    target = tmp_path / "target"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_text()
    remember("key", [ONE])
    assert target.read_text() == before
    assert read_past("key") == ()


def test_without_a_folder_of_the_user_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.delenv("HOME", raising=False)
    remember("key", [ONE])
    assert past_file() is None
    assert read_past("key") == ()


def test_a_folder_that_cannot_be_made_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    remember("key", [ONE])
    assert read_past("key") == ()


def test_the_file_is_the_users_alone_and_names_no_path_or_word_of_the_users() -> None:
    path = written()
    remember("key", [WORD])
    assert path.stat().st_mode & 0o777 == 0o600
    for line in path.read_text().splitlines():
        assert json.loads(line).keys() == {"key", "time"}
    assert "/" not in path.read_text()
    assert "mine" not in path.read_text()
