from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

from autoconf_launch.launcher.report import csv_text, finished_row, trial_document
from autoconf_launch.launcher.report.results import ABOVE_PEAK

from .fixed import RECORDS


def test_a_detail_with_commas_and_quotes_is_one_cell() -> None:
    assert next(csv.reader(io.StringIO(csv_text([('a, "b"', None)])))) == ['a, "b"', ""]


def test_flops_above_the_peak_are_marked_in_the_table_and_the_live_view() -> None:
    measured = RECORDS[0].measurement
    assert measured
    wrong = replace(RECORDS[0], outcome=replace(measured, above_peak=True))
    assert trial_document(RECORDS[0])["detail"] is None
    assert trial_document(wrong)["detail"] == ABOVE_PEAK
    assert finished_row(wrong, is_best=True).cells[-1] == "best, FLOPS > peak"


def test_a_trial_is_a_document_of_json_values() -> None:
    document = json.loads(json.dumps(trial_document(RECORDS[2])))
    assert (document["outcome"], document["throughput"]) == ("out_of_memory", None)
