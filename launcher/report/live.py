"""A tuning run as one table that is drawn again in place.

Imported only where it is used, as it needs rich. No thread: it draws in the thread that hands
it events, and at the ticks of a timer.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import singledispatchmethod
from itertools import islice
from types import FrameType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from autoconf_launch.autotuner.space import Prediction, Record, Trial

from ..events import (
    Event,
    Finished,
    ModelProfiled,
    Note,
    SpaceBuilt,
    StepSeen,
    TrialFinished,
    TrialStarted,
)
from .cells import HEADERS, RowKind, TrialRow, finished_row, minutes_text, running_row
from .lines import LinesView, failure_lines


@dataclass(slots=True)
class _Entry:
    """A trial as far as it has got."""

    trial: Trial
    prediction: Prediction | None = None
    step: int = 0
    record: Record | None = None
    resumed: bool = False


class Board:
    """Takes events in order; one entry per trial and attempt, in the order of their starts.

    What is measured again round by round has one entry, of its last round.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._best: Record | None = None
        self._phase = "profiling the model"
        self._left: int | None = None
        self._earlier_s = 0.0

    @singledispatchmethod
    def take(self, event: Event) -> None:
        """Fold one event in; those that change nothing here are passed over."""

    @take.register
    def _(self, event: ModelProfiled) -> None:
        self._phase = "building the search space"

    @take.register
    def _(self, event: SpaceBuilt) -> None:
        self._left = event.left

    @take.register
    def _(self, event: TrialStarted) -> None:
        self._phase = f"stage {event.trial.space}"
        self._entry(event.trial).prediction = event.prediction

    @take.register
    def _(self, event: StepSeen) -> None:
        entry = self._entry(event.trial)
        entry.step = max(entry.step, event.step.step)

    @take.register
    def _(self, event: TrialFinished) -> None:
        entry = self._entry(event.record.trial)
        entry.trial = event.record.trial
        entry.record, entry.resumed = event.record, event.resumed
        self._best = event.best
        self._earlier_s = max(self._earlier_s, event.elapsed_s if event.resumed else 0.0)

    @take.register
    def _(self, event: Finished) -> None:
        self._phase = "done"

    def __len__(self) -> int:
        return len(self._entries)

    def rows(self, limit: int) -> Sequence[TrialRow]:
        """The newest ``limit`` trials, the oldest of them first."""
        newest = list(islice(reversed(self._entries.values()), limit))
        return [self._row(entry) for entry in reversed(newest)]

    def headline(self, session_s: float) -> str:
        """Elapsed time, stage, progress and best so far.

        Args:
            session_s: seconds since this session began; earlier ones are added.
        """
        parts = (minutes_text(self._earlier_s + session_s), self._phase, self._progress())
        return " | ".join(part for part in (*parts, self._best_so_far()) if part)

    def _entry(self, trial: Trial) -> _Entry:
        attempt = 0 if trial.final else trial.attempt
        return self._entries.setdefault((trial.name, attempt), _Entry(trial))

    def _row(self, entry: _Entry) -> TrialRow:
        if entry.record is None:
            return running_row(entry.trial, entry.prediction, entry.step)
        is_best = self._best is not None and entry.trial == self._best.trial
        return finished_row(entry.record, is_best=is_best, resumed=entry.resumed)

    def _progress(self) -> str:
        if not self._entries:
            return ""
        most = "" if self._left is None else f" of at most {self._left + 1}"  # and the baseline
        trials = [entry.trial for entry in self._entries.values() if not entry.trial.again]
        searched = [trial for trial in trials if not (trial.final or trial.soak_steps)]
        again = "" if len(searched) == len(trials) else ", playoff"
        count = len({trial.name for trial in searched})  # a second attempt is no further one
        return f"trial {count}{most}{again}"

    def _best_so_far(self) -> str:
        measured = self._best.measurement if self._best else None
        if self._best is None or measured is None:
            return ""
        return f"best {self._best.trial.name} {measured.throughput_per_s:.2f} samples/s"


@contextmanager
def tick_every(tick: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``tick`` every ``every_s`` seconds, between two steps of whatever else runs.

    A timer signal, no thread: it also wakes a backend's ``wait``, so that the controller looks
    for new steps. Children do not inherit it. Outside of the main thread nothing ticks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        tick()

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


DRAW_EVERY_S = 0.125
TICK_S = 0.5
_LINES_BESIDE_ROWS = 5
_GAP = "  "
_LEFT_COLUMNS = ("config", "status")
_DROPPED_FIRST = ("predicted", "memory", "trial", "measured")
_STYLES = {
    RowKind.RUNNING: "cyan",
    RowKind.MEASURED: "",
    RowKind.BEST: "bold green",
    RowKind.FAILED: "red",
}


class LiveView:
    """Shows events in place while its ``with`` lasts, or until the study is over.

    What the user should keep (notes, the profile, a failure's last lines) goes above the table
    and stays. A terminal that is gone ends the drawing and nothing else.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._board = Board()
        self._lines = LinesView(self._print, quiet=False, level="info")
        self._open = ExitStack()
        self._start_s = self._drawn_s = clock()
        self._busy = False
        self._begun = self._closed = False
        self._live = Live(
            console=console, get_renderable=self._frame, auto_refresh=False, transient=False
        )

    def __enter__(self) -> LiveView:
        self._open.enter_context(tick_every(self.tick, TICK_S))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Draw every row once more and leave the terminal to others; twice is once."""
        self._closed = True
        with suppress(OSError), self._open:
            if len(self._board):
                self._begin()

    def handle(self, event: Event) -> None:
        """Take in one event and show it, at once or with the next that is due."""
        self._busy = True
        try:
            self._board.take(event)
            self._show(event)
            self._draw_if_due()
        except OSError:
            self.close()
        finally:
            self._busy = False

    def tick(self) -> None:
        """Let the clock run, and show what came too fast before."""
        if self._busy:
            return
        try:
            self._draw_if_due()
        except OSError:
            self.close()

    def _draw_if_due(self) -> None:
        now_s = self._clock()
        if not self._closed and now_s - self._drawn_s >= DRAW_EVERY_S:
            self._drawn_s = now_s
            self._begin()
            self._live.refresh()

    def _begin(self) -> None:
        """Take the terminal, once and late: a wrong flag ends before anything is drawn."""
        if not self._begun:
            self._begun = True
            self._open.callback(self._live.stop)
            self._live.start()
            self._console.show_cursor(True)  # even a SIGKILL leaves the terminal as it was

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        """Events that change the table alone."""

    @_show.register(Note)
    @_show.register(ModelProfiled)
    @_show.register(SpaceBuilt)
    def _(self, event: Event) -> None:
        self._lines.handle(event)

    @_show.register
    def _(self, event: TrialFinished) -> None:
        for line in failure_lines(event.record):
            self._print(line)

    @_show.register
    def _(self, event: Finished) -> None:
        self.close()
        self._lines.handle(event)

    def _print(self, line: str) -> None:
        self._console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)

    def _frame(self) -> Group:
        room = max(3, self._console.size.height - _LINES_BESIDE_ROWS)
        count = len(self._board)
        limit = count if self._closed else min(count, room)
        lines = [_line(self._board.headline(self._clock() - self._start_s), "bold")]
        if limit < count:
            lines.append(_line(f"(the newest; {count - limit} earlier trials come at the end)"))
        if limit:
            lines += _table(self._board.rows(limit), self._console.size.width)
        if not self._closed:
            lines.append(_line(""))  # what is typed, ^C too, must not make a row one longer
        return Group(*lines)


def _table(rows: Sequence[TrialRow], width: int) -> Iterator[Text]:
    """Header and rows; by hand, as rich's own table takes ten times as long."""
    shown = fitting_columns(rows, width)
    yield _line(_align(HEADERS, shown), "underline")
    for row in rows:
        yield _line(_align(row.cells, shown), _STYLES[row.kind])


def _align(cells: Sequence[str], shown: Sequence[tuple[int, int]]) -> str:
    both = ((HEADERS[column], cells[column], width) for column, width in shown)
    parts = (c.ljust(w) if name in _LEFT_COLUMNS else c.rjust(w) for name, c, w in both)
    return _GAP.join(parts).rstrip()


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def fitting_columns(rows: Sequence[TrialRow], width: int) -> list[tuple[int, int]]:
    """Columns that ``width`` characters can show whole, each with its own width.

    What matters least is dropped first.
    """
    columns = zip(HEADERS, *(row.cells for row in rows), strict=True)
    shown = [(index, max(map(len, column))) for index, column in enumerate(columns)]
    for name in _DROPPED_FIRST:
        if sum(column_width + len(_GAP) for _, column_width in shown) - len(_GAP) <= width:
            break
        shown = [column for column in shown if HEADERS[column[0]] != name]
    return shown
