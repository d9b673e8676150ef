"""The command: the only module that prints and knows exit codes. Not: what the verbs do."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence

from autoconf_launch.core import (
    AutoconfError,
    ConfigError,
    HardwareError,
    NothingFeasibleError,
    ResultsFolderError,
)

from .commands.launch import launch
from .commands.tune import tune
from .flags import parse_request, usage
from .interrupts import InterruptedBySignalError
from .paths import is_disk_full
from .request import LaunchRequest
from .views.lines import LinesView

OK, USAGE, INFEASIBLE, HARDWARE, RESUMABLE, CTRL_C = 0, 2, 3, 4, 75, 130
_CODES: tuple[tuple[type[AutoconfError], int], ...] = (
    (ConfigError, USAGE),
    (ResultsFolderError, USAGE),
    (NothingFeasibleError, INFEASIBLE),
    (HardwareError, HARDWARE),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``autoconf-launch``; the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return OK if arguments else USAGE
    return _guarded(lambda: _run(parse_request(arguments)))


def _run(request: LaunchRequest) -> int:
    logging.basicConfig(level=request.log_level.upper(), format="%(levelname)s %(message)s")
    view = LinesView(_write_line, quiet=request.quiet, level=request.log_level)
    command = tune if request.autotuning else launch
    return command(request, view.handle)


def _write_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _guarded(run: Callable[[], int]) -> int:
    """Every end is an exit code and at most a few lines; never a traceback for a known cause."""
    try:
        return run()
    except AutoconfError as error:
        _write_line(f"autoconf-launch: {error}")
        for line in getattr(error, "log_tail", ()):
            _write_line(f"  | {line}")
        return next((code for kind, code in _CODES if isinstance(error, kind)), USAGE)
    except InterruptedBySignalError as interrupt:
        if interrupt.number == signal.SIGINT:
            _write_line("autoconf-launch: stopped by Ctrl-C; the same command goes on from here.")
            return CTRL_C
        _write_line(
            f"autoconf-launch: stopped by {interrupt}; the same command goes on from here."
        )
        return RESUMABLE
    except OSError as error:
        if not is_disk_full(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        _write_line(f"autoconf-launch: the disk is full{where}; make room, then run it again.")
        return HARDWARE


if __name__ == "__main__":
    sys.exit(main())
