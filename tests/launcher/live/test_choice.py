from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

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


BOTH = (TERMINAL, TERMINAL)


@pytest.mark.parametrize(
    ("request_", "streams", "environment", "live"),
    [
        (TUNE, BOTH, XTERM, True),
        (TUNE, BOTH, {**XTERM, "NO_COLOR": "1"}, True),
        (TUNE, (PIPE, TERMINAL), XTERM, False),
        (TUNE, (TERMINAL, PIPE), XTERM, False),
        *((TUNE, BOTH, {"TERM": name}, False) for name in ("dumb", "unknown")),
        (TUNE, BOTH, {}, False),
        (LaunchRequest(script="train.py"), BOTH, XTERM, False),
        (replace(TUNE, quiet=True), BOTH, XTERM, False),
        (replace(TUNE, log_level="debug"), BOTH, XTERM, False),
    ],
)
def test_a_tune_is_shown_live_on_a_terminal_that_can_unless_it_asks_for_less_or_more(
    request_: LaunchRequest, streams: tuple[Stream, ...], environment: dict[str, str], live: bool
) -> None:
    assert wants_live(request_, streams, environment) is live


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
