"""The command: the only module that prints and knows exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import TextIO

from autoconf_launch.core import (
    AutoconfError,
    ConfigError,
    HardwareError,
    NothingFeasibleError,
    ResultsFolderError,
    one_line,
)

from .extension_points import load_reference
from .interrupts import DoesNotFitError, InterruptedBySignalError
from .verbs import LAUNCHING, VERBS, overview, question_of_verb

OK, NO, USAGE, INFEASIBLE, HARDWARE, RESUMABLE, CTRL_C = 0, 1, 2, 3, 4, 75, 130
_CODES: tuple[tuple[type[AutoconfError], int], ...] = (
    (DoesNotFitError, NO),
    (ConfigError, USAGE),
    (ResultsFolderError, USAGE),
    (NothingFeasibleError, INFEASIBLE),
    (HardwareError, HARDWARE),
)
_PRINTED = {
    "--completion": "autoconf_launch.launcher.completion:completion",
    "--schema": "autoconf_launch.launcher.commands.schema:schema",
}
"""Global flags that print a text: ``module:function`` as for a verb."""
_LAUNCH = "autoconf_launch.launcher.launching:launch_or_tune"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``autoconf-launch``; the exit code."""
    with _lasting_output():
        return _main(sys.argv[1:] if argv is None else list(argv))


def _main(arguments: list[str]) -> int:
    try:
        Path.cwd()
    except FileNotFoundError:
        _write_line("autoconf-launch: The working directory was deleted; change to another one.")
        return USAGE
    if text := _asked_of_all(arguments or ["--help"]):
        with suppress(BrokenPipeError):
            print(text, flush=True)
        return OK if arguments else USAGE
    if (words := _verb_words(arguments)) is not None:
        verb = VERBS[" ".join(arguments[:words])]
        return _exit_code_of(partial(_run_verb, verb.reference, arguments[words:]))
    flag, _, value = arguments[0].partition("=")
    if flag in _PRINTED:
        values = [value] if value else arguments[1:]
        return _exit_code_of(partial(_run_verb, _PRINTED[flag], values))
    if arguments[0] in LAUNCHING:
        arguments = [f"--autotuning={arguments[0]}", *arguments[1:]]
    return _exit_code_of(lambda: load_reference(_LAUNCH)(arguments, _write_line))


def _verb_words(arguments: Sequence[str]) -> int | None:
    """Number of words that name a verb: "show spaces" before "show"; None if none does."""
    return next((words for words in (2, 1) if " ".join(arguments[:words]) in VERBS), None)


def _asked_of_all(arguments: Sequence[str]) -> str | None:
    """The text of a global flag such as --help; None if the command must do something."""
    first, *others = arguments
    if first in ("-h", "--help"):
        return overview()
    if first == "--version":
        from importlib.metadata import version  # --help does not wait for it

        return f"autoconf-launch {version('autoconf-launch')}"
    if first in LAUNCHING and others and others[0] in ("-h", "--help"):
        return _help(first)
    words = _verb_words(arguments)
    if words is None or not {"-h", "--help"} & set(takewhile("--".__ne__, arguments[words:])):
        return None
    return _help(" ".join(arguments[:words]))


def _help(verb: str) -> str:
    """The help of a verb, of which only its question is imported."""
    return question_of_verb(verb).parser().format_help().rstrip("\n")


def _run_verb(where: str, arguments: Sequence[str]) -> int:
    verb: Callable[[Sequence[str]], Iterable[str]] = load_reference(where)
    _print(lambda: verb(arguments))
    return OK


def _print(pieces: Callable[[], Iterable[str]]) -> None:
    from .results import terminal_text

    with suppress(BrokenPipeError):
        for piece in pieces():
            print(terminal_text(piece), flush=True)


@contextmanager
def _lasting_output() -> Iterator[None]:
    """Escape what a stream cannot encode; a reader that went away (``| head``) is not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except BrokenPipeError:
                _discard(stream)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write_line(line: str) -> None:
    from .results import terminal_text

    try:
        print(terminal_text(line), file=sys.stderr, flush=True)
    except BrokenPipeError:  # a tune goes on: what it finds is in its folder
        _discard(sys.stderr)


def _exit_code_of(run: Callable[[], int]) -> int:
    """Every end is an exit code and at most a few lines; never a traceback for a known cause."""
    try:
        return run()
    except AutoconfError as error:
        is_usage = isinstance(error, (ConfigError, ResultsFolderError))
        _write_line(f"autoconf-launch: {one_line(str(error)) if is_usage else error}")
        for line in getattr(error, "log_tail", ()):
            _write_line(f"  | {line}")
        return next((code for kind, code in _CODES if isinstance(error, kind)), USAGE)
    except InterruptedBySignalError as interrupt:
        if interrupt.number == signal.SIGINT:
            _write_line(
                "autoconf-launch: stopped by Ctrl-C; the same command continues from here."
            )
            return CTRL_C
        _write_line(
            f"autoconf-launch: stopped by {interrupt}; the same command continues from here."
        )
        return RESUMABLE
    except KeyboardInterrupt:
        return CTRL_C
    except OSError as error:
        from .results import is_misnamed, is_unwritable, sentence_on

        if (sentence := sentence_on(error)) is None:
            raise
        _write_line(f"autoconf-launch: {sentence}")
        return USAGE if is_unwritable(error) or is_misnamed(error) else HARDWARE


if __name__ == "__main__":
    sys.exit(main())
