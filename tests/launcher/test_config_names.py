"""Names of trials' configuration files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.dialects import DIALECTS
from autoconf_launch.launcher.extension_points import load_reference
from autoconf_launch.launcher.results import ResultsPaths, read_results
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.tuning.job import config_stem

NO_FILE = ScriptSource(script_args=("--batch_size=2",), config=RawConfig({}), config_argument=None)
A_FILE = dataclasses.replace(NO_FILE, script_args=("--deepspeed=ds.json",), config_argument=0)


@pytest.mark.parametrize(
    ("dialect", "source", "stem"),
    [
        ("native", NO_FILE, "ds_config"),
        ("deepspeed", A_FILE, "ds_config"),
        ("hf_trainer", A_FILE, "ds_config"),
        ("hf_trainer", NO_FILE, "config"),
        ("arguments", NO_FILE, "config"),
    ],
)
def test_it_is_deepspeeds_where_a_rank_reads_it(
    dialect: str, source: ScriptSource, stem: str
) -> None:
    assert config_stem(load_reference(DIALECTS[dialect])(), source) == stem


def test_the_best_one_is_called_like_those_of_the_trials(tmp_path: Path) -> None:
    paths = ResultsPaths(results=tmp_path, exps=tmp_path, config_stem="config")
    names = (paths.config(tmp_path / "trial").name, paths.optimal_config.name)
    assert names == ("config.json", "config_optimal.json")


@pytest.mark.parametrize("name", ["ds_config.json", "config.json"])
def test_the_baselines_is_read_by_either_name(tmp_path: Path, name: str) -> None:
    paths = ResultsPaths(results=tmp_path, exps=tmp_path)
    paths.profile.mkdir()
    (paths.profile / name).write_text(json.dumps({"--batch_size": "4"}))
    paths.journal.write_text("")
    assert read_results(tmp_path).baseline_config == RawConfig({"--batch_size": "4"})
