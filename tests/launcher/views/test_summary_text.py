from __future__ import annotations

import re

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
