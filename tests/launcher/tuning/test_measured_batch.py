from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoconf_launch.core import AppliedStrategy, Precision, RankResult, Recompute, encode
from autoconf_launch.launcher.dialects import ScriptSource, UserSettings
from autoconf_launch.launcher.dialects.any_script import ArgumentsDialect
from autoconf_launch.launcher.events import Event
from autoconf_launch.launcher.tuning.measured_batch import as_measured

from ..dialects.sources import script, told

DIALECT = ArgumentsDialect()


def profiled(folder: Path, accumulation: int) -> Path:
    applied = AppliedStrategy(
        zero_stage=0,
        data_parallel=1,
        micro_batch=8,
        accumulation=accumulation,
        precision=Precision.FP32,
        recompute=Recompute.NONE,
        description="one rank",
    )
    result = RankResult(rank=0, world_size=1, attempt="a", ended_unix_s=0.0, applied=applied)
    (folder / "result.json").write_text(json.dumps(encode(result)))
    return folder


def read(source: ScriptSource) -> UserSettings:
    return DIALECT.read(source, world_size=2, allow_global_batch_change=True)


def test_an_accumulation_that_no_argument_sets_is_in_the_baseline(tmp_path: Path) -> None:
    source, heard = script("--batch_size", "8"), list[Event]()
    folder = profiled(tmp_path, 4)
    user = as_measured(read(source), folder, heard.append)
    assert user.baseline.layout.global_batch == 8 * 4 * 2
    assert {c.knob: c.values for c in user.choices}["accumulation"] == (4,)
    assert "its global batch is 64" in str(heard[0])


@pytest.mark.parametrize("words", [("--batch_size", "8", "--accum_steps", "2"), ("--bs=8",)])
def test_settings_are_left_alone_where_they_are_told_or_agree(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    source, heard = told(script(*words)), list[Event]()
    user = read(source)
    folder = profiled(tmp_path, 4 if "--accum_steps" in words else 1)
    assert as_measured(user, folder, heard.append) == user
    assert heard == []


def test_without_a_profile_run_nothing_changes(tmp_path: Path) -> None:
    source, heard = script("--batch_size", "8"), list[Event]()
    user = read(source)
    assert as_measured(user, tmp_path, heard.append) == user
