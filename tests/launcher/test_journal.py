from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.journal import Journal, read_journal

from .controlled import PRINT, opened, recorded, space

RECORDS = recorded(space(2))


def test_a_journal_says_what_was_written(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.write_profiled()
        for record in RECORDS:
            journal.write_record(record)
        contents = journal.read()
    assert contents.fingerprint == PRINT
    assert contents.profiled
    assert contents.records == RECORDS


def test_a_started_trial_without_a_record_is_an_orphan(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        name = RECORDS[0].trial.name
        journal.write_started(name=name, number=0, attempt="one", pid=1)
        journal.write_started(name="other", number=1, attempt="two", pid=2)
        journal.write_record(RECORDS[0])
        assert [orphan.attempt for orphan in journal.read().orphans] == ["two"]


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_cut_off_before_the_next_is_written(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path) as journal:
        for record in RECORDS[:3]:
            journal.write_record(record)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.read().records == RECORDS[:2]
        journal.write_record(RECORDS[2])
        assert journal.read().records == RECORDS[:3]


def test_a_reader_leaves_a_line_that_is_still_being_written_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.write_record(RECORDS[0])
    path = tmp_path / "journal.jsonl"
    path.write_bytes(torn := path.read_bytes() + b'{"name": "z')
    assert read_journal(path).records == RECORDS[:1]
    assert path.read_bytes() == torn


@pytest.mark.parametrize("line", [b"no json\n", b'{"name": "x"}\n', b"[]\n", b'"x"\n'])
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    with opened(tmp_path) as journal:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(path.read_bytes() + line)
        journal.write_record(RECORDS[0])
        with pytest.raises(ResultsFolderError, match="line 2 of"):
            journal.read()
