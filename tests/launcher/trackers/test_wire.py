from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import DecodeError
from autoconf_launch.launcher.trackers.base import (
    Entry,
    News,
    Phase,
    Setup,
    TrackedBest,
    TrackedChoice,
    TrackedTrial,
    entry_line,
    message_line,
    read_entry,
    read_message,
)

from .told import STUDY

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | st.integers() | NUMBERS | st.text()
PARAMETERS = st.lists(st.tuples(st.text(), VALUES)).map(tuple)
METRICS = st.lists(st.tuples(st.text(), NUMBERS)).map(tuple)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(TrackedTrial, parameters=PARAMETERS, metrics=METRICS, phase=st.sampled_from(Phase)),
    st.builds(TrackedBest, metrics=METRICS),
    st.builds(TrackedChoice, parameters=PARAMETERS, metrics=METRICS),
)


@given(ENTRIES)
def test_an_entry_is_one_line_that_reads_back_as_itself(entry: Entry) -> None:
    line = entry_line(entry)
    assert line.count(b"\n") == 1
    assert read_entry(line) == entry


@pytest.mark.parametrize("entry", STUDY, ids=lambda entry: str(entry.key))
def test_a_torn_entry_is_no_entry(entry: Entry) -> None:
    with pytest.raises(DecodeError):
        read_entry(entry_line(entry)[:-2])


@pytest.mark.parametrize("line", [b"", b"3\n", b"{}\n", b'{"kind": "odd"}\n', b"\xff\n"])
def test_another_line_is_no_entry(line: bytes) -> None:
    with pytest.raises(DecodeError):
        read_entry(line)


def test_the_setup_reads_back_as_itself() -> None:
    setup = Setup(tracker="a:B", study="s", project=None, folder="/f", api_key_file="k")
    assert read_message(Setup, message_line(setup)) == setup


def test_news_read_back_as_themselves() -> None:
    news = News(text="ä sentence", warning=True)
    assert read_message(News, message_line(news)) == news
