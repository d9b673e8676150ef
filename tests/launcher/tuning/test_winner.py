from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.playoff import Launches, summarise_launches
from autoconf_launch.autotuner.space import AutotuningSettings
from autoconf_launch.core import Edit, RawConfig, dotted_name
from autoconf_launch.launcher.dialects import HfTrainerDialect
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.results import ResultsPaths
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import Rendered
from autoconf_launch.launcher.tuning import write_results
from autoconf_launch.launcher.tuning.winner import _write_script, changes_to_user

from ..dialects.sources import render_with
from ..report.fixed import RECORDS

SAID = ("The machine was slower.", "t1 failed when it was launched again.")


def keep(folder: Path, *findings: str) -> str:
    """The summary that is left of these trials."""
    paths = ResultsPaths(results=folder, exps=folder)
    summary = summarise_launches(Launches(records=RECORDS), AutotuningSettings(), duration_s=1.0)
    write_results(
        paths,
        replace(summary, notes=findings),
        request=parse_request(["train.py"]),
        source=ScriptSource(script_args=(), config=RawConfig({}), config_argument=None),
        winner=None,
    )
    return paths.summary_text.read_text()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_findings_are_in_the_second_part_of_the_kept_summary(tmp_path: Path, count: int) -> None:
    details = keep(tmp_path, *SAID[:count]).partition("\nDetails\n")[2]
    assert [line in details for line in SAID] == [number < count for number in range(len(SAID))]


def test_a_folder_elsewhere_is_named_whole_and_one_below_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert f"show {tmp_path}/results --details\n" in kept_in(tmp_path / "results")
    assert "show results --details\n" in kept_in(tmp_path / "work" / "results")


def kept_in(folder: Path) -> str:
    folder.mkdir()
    return keep(folder)


def test_without_a_winner_no_earlier_optimum_is_left(tmp_path: Path) -> None:
    names = ("ds_config_optimal.json", "cmd_optimal.txt", "run_optimal.sh")
    for name in names:
        (tmp_path / name).write_text("of an earlier space")
    keep(tmp_path)
    assert not [name for name in names if (tmp_path / name).exists()]


def test_the_script_can_be_run_by_those_who_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        _write_script(tmp_path / "run_optimal.sh", "true")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run_optimal.sh").stat().st_mode) == 0o700


@pytest.mark.parametrize("words", [("--deepspeed", "ds.json"), ("--deepspeed=ds.json",)])
def test_an_argument_that_fills_the_deepspeed_file_is_among_the_changes(
    words: tuple[str, ...],
) -> None:
    arguments = ("--per_device_train_batch_size", "2", *words)
    batch = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    document = RawConfig({**batch, "zero_optimization": {"stage": 1}})
    source = ScriptSource(
        script_args=arguments, config=document, config_argument=len(arguments) - 1
    )
    winner = render_with(HfTrainerDialect(), source, micro_batch=8)
    expected = Edit(("--per_device_train_batch_size",), "2", "8")
    assert changes_to_user(source, winner) == (expected,)


@pytest.mark.parametrize(
    ("document", "after", "changed"),
    [
        ({}, {"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 0}}, ()),
        ({}, {"gradient_accumulation_steps": 1}, ()),
        ({}, {"gradient_accumulation_steps": 2}, ("gradient_accumulation_steps",)),
        ({"zero_optimization": {"stage": 1}}, {}, ("zero_optimization.stage",)),
        ({"bf16": {"enabled": True}}, {"bf16": {"enabled": "auto"}}, ("bf16.enabled",)),
    ],
)
def test_a_key_that_is_written_but_means_what_its_absence_does_is_not_a_change(
    document: dict[str, Any], after: dict[str, Any], changed: tuple[str, ...]
) -> None:
    source = ScriptSource(script_args=(), config=RawConfig(document), config_argument=None)
    edits = changes_to_user(source, Rendered(config=RawConfig(after), script_args=()))
    assert tuple(dotted_name(edit.path) for edit in edits) == changed
