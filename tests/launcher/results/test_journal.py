from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX, FINAL_SUFFIX
from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results import Journal, JournalContents, SpaceLine, read_journal
from autoconf_launch.launcher.results.journal import CoveredTime

from ..controlled import PRINT, answers_for_all, open_journal, space

RECORDS = answers_for_all(space(2))


def test_a_journal_says_what_was_written(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.write_profiled(7.5)
        for record in RECORDS:
            journal.write_record(record)
        contents = journal.read()
    assert contents.fingerprint == PRINT
    assert contents.profiled
    assert contents.records == RECORDS


def test_what_was_measured_in_another_start_does_not_count(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.write_profiled(1.0)
        journal.write_record(RECORDS[0])
        journal.write_started(name="z0_gas1_tmbspg9", number=1, attempt="two", handle="2")
        journal.write_restart()
        contents = journal.read()
        assert contents == JournalContents(fingerprint=PRINT)
        journal.write_record(RECORDS[1])
        assert journal.read().records == (RECORDS[1],)


def test_a_started_trial_without_a_record_is_an_orphan(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        name = RECORDS[0].trial.name
        journal.write_started(name=name, number=0, attempt="one", handle="1")
        journal.write_started(name="z0_gas1_tmbspg9", number=1, attempt="two", handle="2")
        journal.write_record(RECORDS[0])
        assert [orphan.attempt for orphan in journal.read().orphans] == ["two"]


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_cut_off_before_the_next_is_written(tmp_path: Path, cut: int) -> None:
    with open_journal(tmp_path) as journal:
        for record in RECORDS[:3]:
            journal.write_record(record)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.read().records == RECORDS[:2]
        journal.write_record(RECORDS[2])
        assert journal.read().records == RECORDS[:3]


def test_a_reader_leaves_a_line_that_is_still_being_written_alone(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.write_record(RECORDS[0])
    path = tmp_path / "journal.jsonl"
    path.write_bytes(torn := path.read_bytes() + b'{"name": "z')
    assert read_journal(path).records == RECORDS[:1]
    assert path.read_bytes() == torn


@pytest.mark.parametrize(
    "line", [b"no json\n", b'{"name": "x"}\n', b"[]\n", b'"x"\n', b'{"started": "x"}\n']
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    with open_journal(tmp_path) as journal:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(path.read_bytes() + line)
        journal.write_record(RECORDS[0])
        with pytest.raises(ResultsFolderError, match="line 2 of"):
            journal.read()


def repeat(record: Record, after: int, *, doubted: bool = False) -> Record:
    name = f"{record.trial.name}{AGAIN_SUFFIX}"
    return replace(record, trial=replace(record.trial, name=name, again=after, doubted=doubted))


def test_what_was_launched_again_is_no_record_of_the_search(tmp_path: Path) -> None:
    again = repeat(RECORDS[0], 2, doubted=True)
    with open_journal(tmp_path) as journal:
        for record in (*RECORDS[:2], again, RECORDS[2]):
            journal.write_record(record)
        contents = journal.read()
    assert contents.records == RECORDS[:3]
    assert contents.repeats == (again,)
    assert contents.search.records == (*RECORDS[:2], again, RECORDS[2])


def test_in_another_space_repeats_have_the_number_of_their_trial() -> None:
    first, second = (
        replace(record, trial=replace(record.trial, number=number))
        for number, record in enumerate((RECORDS[0], answers_for_all(space(2))[10]))
    )
    told = (first, second, repeat(first, 2), repeat(second, 2))
    line = SpaceLine(digest="d", baseline=second.trial.name, left_out=("other",))
    found = JournalContents(told=told).in_space(line)
    assert [record.trial.number for record in found.told] == [2, 0, 2, 0]


def final(record: Record) -> Record:
    name = f"{record.trial.name}{FINAL_SUFFIX}"
    return replace(record, trial=replace(record.trial, name=name, final=True))


def start(journal: Journal, record: Record, before_s: float | None) -> None:
    trial = record.trial
    journal.write_started(name=trial.name, number=0, attempt="a", handle=None, before_s=before_s)


def test_a_start_in_a_journal_of_before_says_no_time(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        start(journal, final(RECORDS[0]), None)
    path = tmp_path / "journal.jsonl"
    path.write_text(path.read_text().replace(',"before_s":null', ""))
    assert [(one.before_s, one.attempt) for one in read_journal(path).orphans] == [(None, "a")]


def test_without_starts_launches_took_all_their_times(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        for record in RECORDS[:3]:
            journal.write_record(record)
        assert journal.read().search.times_s == (1.0, 2.0, 3.0)


def test_in_another_space_repeats_stay_behind_the_records_that_they_came_after() -> None:
    first, _, second, third = (answers_for_all(space(2))[n] for n in (0, 1, 10, 20))
    repeats = (repeat(first, 2), repeat(second, 3), repeat(third, 3))
    contents = JournalContents(told=(first, second, repeats[0], third, *repeats[1:]))
    line = SpaceLine(digest="d", baseline=first.trial.name, left_out=(second.trial.name,))
    found = contents.in_space(line)
    assert [record.trial.again for record in found.repeats] == [1, 2]
    assert [r.trial.name for r in found.repeats] == [repeats[0].trial.name, repeats[2].trial.name]


def test_the_first_round_says_how_long_a_search_took_that_did_not_go_on(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.write_record(RECORDS[0])
        start(journal, final(RECORDS[0]), 12.5)
        assert journal.read().searched_s == 12.5
        journal.write_record(RECORDS[1])
        assert journal.read().searched_s is None


STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(STRETCHES)
def test_each_second_counts_once_however_many_lie_over_it(
    stretches: list[tuple[int, int]],
) -> None:
    covered = CoveredTime()
    for start_s, length_s in stretches:
        covered.add(start_s, start_s + length_s)
    seconds = {start_s + n for start_s, length_s in stretches for n in range(length_s)}
    assert covered.total_s == len(seconds)
