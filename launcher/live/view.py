"""A tuning run as one table that is drawn again in place.

Imported late, as it needs rich. No thread: it draws in the thread that passes
events, and at the ticks of a timer.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import singledispatchmethod
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..events import Event, Finished, ModelProfiled, Note, SpaceBuilt, TrialFinished
from ..report import HEADERS, RowKind, TrialRow, failure_lines, hidden_rows_text, phase_text
from ..results import terminal_text
from .board import Board, PhaseProgress
from .lines import LinesView, wrap_sentences

DRAW_EVERY_S = 0.125
TICK_S = 0.5
_LINES_BESIDE_ROWS = 6
_LEAST_BAR, _MOST_BAR = 8, 24
_GAP = "  "
_LEFT_COLUMNS = ("config", "status")
_DROPPED_FIRST = ("predicted", "memory", "trial", "measured")
_STYLES = {
    RowKind.RUNNING: "cyan",
    RowKind.MEASURED: "",
    RowKind.BEST: "bold green",
    RowKind.FAILED: "red",
}


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
        self._board.session_s = self._clock() - self._start_s
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
        """Draw nothing above the table for other events."""

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

    def _print(self, text: str) -> None:
        lines = Text(wrap_sentences(terminal_text(text), self._console.width))
        self._console.print(lines, soft_wrap=True, highlight=False)

    def _frame(self) -> Group:
        self._board.session_s = self._clock() - self._start_s
        room = max(3, self._console.size.height - _LINES_BESIDE_ROWS)
        count = len(self._board)
        limit = count if self._closed else min(count, room)
        lines: list[RenderableType] = [self._head()]
        if answer := self._board.answer():
            lines.append(_line(answer, "bold"))
        if limit < count:
            lines.append(_line(hidden_rows_text(count - limit)))
        if limit:
            lines += _table(self._board.rows(limit), self._console.size.width)
        if not self._closed:
            lines.append(_line(""))  # what is typed, ^C too, must not make a row one longer
        return Group(*lines)

    @property
    def _bar_width(self) -> int:
        return max(_LEAST_BAR, min(_MOST_BAR, self._console.width // 5))

    def _head(self) -> Table:
        board = self._board
        progress = board.progress
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(width=self._bar_width)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        times = _line(board.headline())
        grid.add_row(
            Text(_phase_text(board), style="bold"), _bar(progress, self._bar_width), times
        )
        return grid


def _phase_text(board: Board) -> str:
    phase, progress = board.phase.value, board.progress
    return phase_text(phase, progress.done, progress.total) if progress else phase


def _bar(progress: PhaseProgress | None, width: int) -> RenderableType:
    if progress is None or not progress.total:
        return Text("")
    return ProgressBar(total=progress.total, completed=progress.done, width=width)


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
    return Text(terminal_text(text), style=style, no_wrap=True, overflow="ellipsis")


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
