from __future__ import annotations

import csv
import io
import json

from autoconf_launch.launcher.report.cells import (
    CSV_COLUMNS,
    csv_row,
    csv_text,
    trial_document,
)

from .fixed import RECORDS


def test_there_is_a_row_for_each_record_under_the_columns() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text((CSV_COLUMNS, *map(csv_row, RECORDS))))))
    assert [row["name"] for row in rows] == [record.trial.name for record in RECORDS]


def test_a_detail_with_commas_and_quotes_is_one_cell() -> None:
    assert next(csv.reader(io.StringIO(csv_text([('a, "b"', None)])))) == ['a, "b"', ""]


def test_a_trial_is_a_document_of_json_values() -> None:
    document = json.loads(json.dumps(trial_document(RECORDS[2])))
    assert (document["outcome"], document["throughput"]) == ("out_of_memory", None)
