from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.launcher.events import Event, TrialFinished
from autoconf_launch.launcher.journal import Journal, read_journal

from .controlled import opened, run_study, space

SETTINGS = AutotuningSettings(tuner_type="model_based", tuner_early_stopping=3)


def test_every_outcome_is_in_the_journal_in_the_order_it_was_told(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        study, _ = run_study(space(), journal)
        assert journal.read().records == study.records


def test_the_baseline_is_trial_0_and_is_never_run_again(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        _, desk = run_study(space(), journal)
    assert desk.planned[0] == "z0_gas1_tmbspg1"
    assert len(set(desk.planned)) == len(desk.planned)


@pytest.mark.parametrize("kept", [1, 2, 5, 9])
def test_a_resumed_study_makes_the_proposals_of_the_uninterrupted_one(
    tmp_path: Path, kept: int
) -> None:
    with opened(tmp_path) as journal:
        whole, _ = run_study(space(), journal, settings=SETTINGS)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + 2 * kept]))
    with Journal(path) as journal:
        contents = journal.read()
        resumed, desk = run_study(space(), journal, contents=contents, settings=SETTINGS)
    assert [r.trial.name for r in resumed.records] == [r.trial.name for r in whole.records]
    assert len(desk.planned) == len(whole.records) - kept


def test_a_torn_last_line_costs_its_own_trial_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        whole, _ = run_study(space(), journal, settings=SETTINGS)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with Journal(path) as journal:
        contents = journal.read()
        assert contents.records == whole.records[:-1]
        assert [orphan.name for orphan in contents.orphans] == [whole.records[-1].trial.name]
        run_study(space(), journal, contents=contents, settings=SETTINGS)
    assert read_journal(path).records == whole.records


def test_each_trial_is_announced_once_with_the_best_so_far(tmp_path: Path) -> None:
    events: list[Event] = []
    with opened(tmp_path) as journal:
        study, _ = run_study(space(), journal, listener=events.append)
    finished = [event for event in events if isinstance(event, TrialFinished)]
    assert [event.record for event in finished] == list(study.records)
    assert finished[-1].best == study.best
