from __future__ import annotations

import io
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from autoconf_launch.launcher.events import Finished, Note, TrialStarted
from autoconf_launch.launcher.live.view import DRAW_EVERY_S, LiveView, tick_every
from autoconf_launch.launcher.report import HEADERS, label

from ..report.fixed import RECORDS, RUNNING, events, golden

FIRST_LABEL, RUNNING_LABEL = (label(one.candidate) for one in (RECORDS[0].trial, RUNNING))
SHOW_CURSOR, HIDE_CURSOR, UP = "\x1b[?25h", "\x1b[?25l", "\x1b[1A"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Clock:
    """A second passes at each look, so that every event is drawn."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class Terminal(io.StringIO):
    """A terminal that can be hung up."""

    gone = False

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    before = sys.stdout, sys.stderr
    yield Terminal()
    assert (sys.stdout, sys.stderr) == before, "the streams are not given back"


def view(
    terminal: Terminal, clock: Clock | None = None, *, width: int = 100, height: int = 30
) -> LiveView:
    console = Console(
        file=terminal, force_terminal=True, color_system="standard", width=width, height=height
    )
    return LiveView(console, clock=clock or Clock())


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    yield
    raise KeyboardInterrupt


def last_frame(text: str) -> str:
    """Text on the screen: after the last move up, without control sequences."""
    return CONTROL.sub("", text.rpartition(UP)[2])


def test_the_table_is_as_it_was_looked_at(terminal: Terminal) -> None:
    clock = Clock()
    with view(terminal, clock) as live:
        for event in events():
            live.handle(event)
        clock.now_s, clock.step_s = 46.0, 0.0
    assert last_frame(terminal.getvalue()) == golden("live.txt")


def test_the_cursor_is_never_left_hidden_and_what_ends_at_once_draws_nothing(
    terminal: Terminal,
) -> None:
    with view(terminal):
        pass
    assert terminal.getvalue() == ""
    with view(terminal) as live:
        live.tick()
        text = terminal.getvalue()
        assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    text = terminal.getvalue()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)


def test_an_error_leaves_the_last_table_and_gives_the_terminal_back(terminal: Terminal) -> None:
    live = view(terminal)
    with pytest.raises(KeyboardInterrupt), live, stopped_by_ctrl_c():
        live.handle(TrialStarted(trial=RUNNING, prediction=None))
    assert RUNNING_LABEL in last_frame(terminal.getvalue())
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_trials_that_all_come_at_once_are_shown_at_the_end(terminal: Terminal) -> None:
    with view(terminal, Clock(step_s=0.0)) as live:
        for event in events():
            live.handle(event)
    assert terminal.getvalue().count(FIRST_LABEL) == 1


def test_events_that_come_fast_are_not_all_drawn(terminal: Terminal) -> None:
    with view(terminal, Clock(step_s=DRAW_EVERY_S / 200)) as live:
        before = len(terminal.getvalue())
        for _ in range(50):
            live.handle(TrialStarted(trial=RUNNING, prediction=None))
        assert len(terminal.getvalue()) == before


def test_what_came_too_fast_is_drawn_at_a_tick(terminal: Terminal) -> None:
    clock = Clock(step_s=0.0)
    with view(terminal, clock) as live:
        live.handle(TrialStarted(trial=RUNNING, prediction=None))
        assert RUNNING_LABEL not in terminal.getvalue()
        clock.now_s += 1.0
        live.tick()
        assert RUNNING_LABEL in terminal.getvalue()


def test_notes_and_the_last_lines_of_a_crash_stay_above_the_table(terminal: Terminal) -> None:
    with view(terminal) as live:
        live.handle(Note(text="[bold] is no markup here", warning=True))
        live.handle(Note(text="a key \x1b]0;planted\x07", warning=True))
        for event in events():
            live.handle(event)
    assert r"a key \x1b]0;planted\x07" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()
    text = CONTROL.sub("", terminal.getvalue())
    assert text.count("autoconf-launch: warning: [bold] is no markup here") == 1
    assert "trial 4 ZeRO 1 · micro 4 · accum 4 crashed: rank 1 ended with code 1 " in text
    assert "  | ValueError: no\n" in text


def test_the_end_gives_the_terminal_back_before_the_summary(terminal: Terminal) -> None:
    with view(terminal) as live:
        for event in (*events(), Finished(text="the summary")):
            live.handle(event)
        assert CONTROL.sub("", terminal.getvalue()).endswith("step 3\n\nthe summary\n")
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


SENTENCE = (
    "A sentence of so many words that no narrow terminal has it on a single line of its own."
)
COMMAND = "  autoconf-launch --num_gpus 2 examples/01_pretrain_gpt/train.py --config optimal.json"


def test_sentences_are_wrapped_at_words_and_commands_are_not(terminal: Terminal) -> None:
    with view(terminal, width=40) as live:
        live.handle(Note(text=SENTENCE))
        live.handle(Finished(text=f"{SENTENCE}\n{COMMAND}"))
    lines = CONTROL.sub("", terminal.getvalue()).splitlines()
    assert lines.count(COMMAND) == 1
    heads = ("profile", "done")
    others = [line.strip() for line in lines if line != COMMAND and not line.startswith(heads)]
    assert max(map(len, others)) <= 40
    assert " ".join(filter(None, others)) == f"autoconf-launch: {SENTENCE} {SENTENCE}"


def test_a_low_terminal_shows_the_newest_trials_and_all_at_the_end(terminal: Terminal) -> None:
    with view(terminal, height=8) as live:
        for event in events():
            live.handle(event)
        frame = last_frame(terminal.getvalue())
        assert "(3 more trials come at the end)" in frame
        assert FIRST_LABEL not in frame
    assert FIRST_LABEL in last_frame(terminal.getvalue())


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(97, set()), (96, {"predicted"}), (71, {"predicted", "memory"})],
)
def test_a_narrow_terminal_leaves_whole_columns_out(
    terminal: Terminal, width: int, left_out: set[str]
) -> None:
    with view(terminal, width=width) as live:
        for event in events():
            live.handle(event)
    header = last_frame(terminal.getvalue()).splitlines()[2]
    assert {name for name in HEADERS if name not in header} == left_out


def test_a_terminal_that_is_gone_ends_the_drawing_and_nothing_else(terminal: Terminal) -> None:
    with view(terminal) as live:
        terminal.gone = True
        for event in (*events(), Finished(text="the summary")):
            live.handle(event)


def test_colours_are_left_out_where_no_color_asks_for_that(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with view(terminal) as live:
        for event in events():
            live.handle(event)
    assert re.search(r"\x1b\[(?:\d+;)*3\dm", terminal.getvalue()) is None


def test_ticks_come_while_this_thread_waits_and_not_after_the_end() -> None:
    seen: list[float] = []
    with tick_every(lambda: seen.append(time.monotonic()), 0.01):
        time.sleep(0.1)
    assert len(seen) >= 2
    seen.clear()
    time.sleep(0.03)
    assert seen == []
