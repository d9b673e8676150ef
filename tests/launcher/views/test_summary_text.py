from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.stop import StopKind, StopReason
from autoconf_launch.autotuner.summary import Summary, summarise_records
from autoconf_launch.core import Edit, FailureKind
from autoconf_launch.launcher.views.summary_text import (
    findings_text,
    summary_document,
    table_text,
)

from .fixed import RECORDS, failed, golden, record, trial

EDITS = (Edit(("zero_optimization", "stage"), None, 1), Edit(("train_batch_size",), "auto", 32))
STOP = StopReason(kind=StopKind.EXPLORED, sentence="Every stage was explored.")
LOST = record(trial(5, 2, 1), failed(FailureKind.TIMED_OUT, "did not end"))


def summary(duration_s: float = 1653.988447) -> Summary:
    return summarise_records(
        (*RECORDS, LOST), AutotuningSettings(), duration_s=duration_s, stop=STOP
    )


def test_the_table_is_in_the_form_of_the_deepspeed_autotuner() -> None:
    assert table_text(summary()) == golden("summary.txt")


def test_a_table_ends_with_duration_and_count_also_for_whole_seconds() -> None:
    assert table_text(summary(60.0)).splitlines()[-1] == (
        "Tuning completed in 0:01:00. Total number of experiments: 6."
    )


def test_each_row_of_the_table_has_four_cells() -> None:
    table = table_text(summary()).partition("\n\n")[0]
    assert {len(re.findall(r"\|", line)) for line in table.splitlines()} == {5}


def test_the_findings_are_as_they_were_looked_at() -> None:
    command = "autoconf-launch train.py --config optimal.json"
    assert findings_text(summary(), EDITS, command) == golden("findings.txt")


def test_the_document_says_what_changes() -> None:
    changes = summary_document(summary(), EDITS, "command")["changes"]
    assert changes == [
        {"key": "zero_optimization.stage", "before": None, "after": 1},
        {"key": "train_batch_size", "before": "auto", "after": 32},
    ]


def test_the_document_has_what_launches_again_showed() -> None:
    found = replace(summary(), findings=("The machine was slower.",))
    assert summary_document(found, EDITS, "command")["findings"] == ["The machine was slower."]


def told(**changed: Any) -> str:
    return findings_text(replace(summary(), **changed), (), "command")


@pytest.mark.parametrize(
    ("in_turn", "how"), [(True, ", in 2 rounds in turn."), (False, ", in 2 rounds.")]
)
def test_turns_are_said_of_rounds_that_had_them(in_turn: bool, how: str) -> None:
    line = told(paired=True, rounds=2, in_turn=in_turn).splitlines()[1]
    assert line.endswith(how)


@pytest.mark.parametrize("where", ["ties", "near"])
def test_where_your_own_configuration_is_not_told_apart_no_gain_was_shown(where: str) -> None:
    own = (RECORDS[0].trial.name,)
    assert "no gain was shown" in told(**{"ties": (), "near": (), where: own})


LEFT_OUT = "1 more was not tried: it needs more memory than one that ran out of it."


def test_what_was_left_out_is_said_after_what_could_still_be_gained() -> None:
    lines = told(certificate="The rest cannot win.", left_out=LEFT_OUT).splitlines()
    at = lines.index("The rest cannot win.")
    assert lines[at + 1] == LEFT_OUT


def test_what_was_left_out_is_said_of_a_search_that_was_good_enough_too() -> None:
    enough = StopReason(kind=StopKind.GOOD_ENOUGH, sentence="Good enough: The rest cannot win.")
    text = told(stop=enough, certificate="The rest cannot win.", left_out=LEFT_OUT)
    assert (text.count("The rest cannot win."), text.count(LEFT_OUT)) == (1, 1)


def test_the_document_says_what_was_left_out() -> None:
    found = replace(summary(), left_out=LEFT_OUT)
    assert summary_document(found, EDITS, "command")["left_out"] == LEFT_OUT
