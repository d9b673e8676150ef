from __future__ import annotations

import io
import subprocess
import sys

import pytest

from autoconf_launch.launcher.live import LinesView, open_view, wants_live
from autoconf_launch.launcher.request import LaunchRequest

TUNE = LaunchRequest(script="train.py", autotuning="tune")
XTERM = {"TERM": "xterm-256color"}


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


TERMINAL, PIPE = Stream(terminal=True), Stream(terminal=False)


@pytest.mark.parametrize("environment", [XTERM, {**XTERM, "NO_COLOR": "1"}])
def test_a_tune_on_a_terminal_is_shown_live(environment: dict[str, str]) -> None:
    assert wants_live(TUNE, (TERMINAL, TERMINAL), environment)


@pytest.mark.parametrize("streams", [(PIPE, TERMINAL), (TERMINAL, PIPE), (PIPE, PIPE)])
def test_where_either_stream_is_no_terminal_there_are_lines(streams: tuple[Stream, ...]) -> None:
    assert not wants_live(TUNE, streams, XTERM)


@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb"}, {"TERM": "unknown"}])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(environment: dict[str, str]) -> None:
    assert not wants_live(TUNE, (TERMINAL, TERMINAL), environment)


@pytest.mark.parametrize(
    "request_",
    [
        LaunchRequest(script="train.py"),
        LaunchRequest(script="train.py", autotuning="tune", quiet=True),
        LaunchRequest(script="train.py", autotuning="tune", log_level="debug"),
    ],
)
def test_what_asks_for_less_or_more_than_a_table_gets_lines(request_: LaunchRequest) -> None:
    assert not wants_live(request_, (TERMINAL, TERMINAL), XTERM)


def test_under_a_test_runner_the_view_is_lines() -> None:
    with open_view(TUNE, lambda line: None, XTERM) as view:
        assert isinstance(view, LinesView)


def test_plain_lines_never_import_rich() -> None:
    code = (
        "import sys, autoconf_launch.launcher.commands.tune; "
        "from autoconf_launch.launcher import live; "
        "from autoconf_launch.launcher.request import LaunchRequest; "
        "live.open_view(LaunchRequest(script='x'), print, {}).__enter__(); "
        "sys.exit(any(name.split('.')[0] == 'rich' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
