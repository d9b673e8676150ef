from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, ResultsFolderError
from autoconf_launch.launcher.results import FolderState, read_results
from autoconf_launch.launcher.results.lease import Lease

from ..report.fixed import RECORDS, RUNNING, finish, start, write_folder


def test_a_folder_that_nobody_holds_is_stopped_until_its_study_is_over(tmp_path: Path) -> None:
    assert read_results(write_folder(tmp_path)).state is FolderState.STOPPED
    finish(tmp_path)
    assert read_results(tmp_path).state is FolderState.FINISHED


def test_a_summary_from_before_the_last_records_does_not_count(tmp_path: Path) -> None:
    finish(write_folder(tmp_path), count=len(RECORDS) - 1)
    results = read_results(tmp_path)
    assert (results.state, results.summary_text) == (FolderState.STOPPED, None)


def test_a_folder_that_is_held_is_running_whatever_summary_it_has(tmp_path: Path) -> None:
    finish(write_folder(tmp_path))
    with Lease(tmp_path / "controller.lease"):
        assert read_results(tmp_path).state is FolderState.RUNNING


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    (write_folder(tmp_path) / "journal.jsonl").write_bytes(b"no json\n{}\n")
    with pytest.raises(ResultsFolderError, match="line 1 of"):
        read_results(tmp_path)


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder; give the results folder"):
        read_results(tmp_path / "nothing")


def test_a_folder_without_a_journal_is_refused_and_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a results folder: it has no journal\.jsonl"):
        read_results(tmp_path)


def test_the_folder_above_gets_the_right_one_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "autotuning_results")
    with pytest.raises(ConfigError, match=r"did you mean .*autotuning_results\?"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "env.json"])
def test_the_metric_is_that_of_the_folder(tmp_path: Path, name: str) -> None:
    (write_folder(tmp_path) / name).write_text('{"metric": "latency"}')
    assert read_results(tmp_path).objective.name == "latency"


def test_the_last_step_of_a_running_trial_is_read(tmp_path: Path) -> None:
    start(write_folder(tmp_path))
    assert read_results(tmp_path).last_step(RUNNING.name) == 3
