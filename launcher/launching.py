"""A launch or a tune from its words to its exit code."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

from autoconf_launch.core import NothingFeasibleError

from .engines import early_fork_server
from .events import Event, Listener, Note, TrialFinished
from .extension_points import load_reference
from .flags import parse_request, require_use
from .launch import early_variables, forked_imports
from .live import open_view
from .request import LaunchRequest, RemoteAccess
from .results import saved_pid
from .script import plain_text

_LAUNCH = "autoconf_launch.launcher.commands.launch:launch"
_TUNE = "autoconf_launch.launcher.commands.tune:run_tune"
_Command: TypeAlias = Callable[[LaunchRequest, Listener], int]
_OURS = "autoconf_launch"
"""Package that a script with our runtime imports."""


def launch_or_tune(arguments: Sequence[str], write_line: Callable[[str], None]) -> int:
    """The exit code of a launch or a tune, as requested."""
    began_s = time.monotonic()
    request = parse_request(arguments)
    if not request.autotuning:
        require_use(request)
    with _early_torch(request):
        return _run(request, write_line, began_s)


def _early_torch(request: LaunchRequest) -> AbstractContextManager[None]:
    """Import torch for the trials while the rest of the command is imported."""
    is_here = request.hosts.hostfile is None and request.remote == RemoteAccess()
    is_python = request.python in (None, sys.executable) and request.kind != "program"
    if not (request.autotuning and is_here and is_python):
        return nullcontext()
    is_ours = _OURS in plain_text(Path(request.script))
    imports = forked_imports(request, is_ours=is_ours)
    if imports is None:
        return nullcontext()
    variables = early_variables(request, is_ours=is_ours)
    return early_fork_server(variables, str(Path.cwd()), imports)


def _run(request: LaunchRequest, write_line: Callable[[str], None], began_s: float) -> int:
    logging.basicConfig(level=request.log_level.upper(), format="%(levelname)s %(message)s")
    command: _Command
    if request.autotuning:
        command = partial(load_reference(_TUNE), began_s=began_s)
    else:
        command = load_reference(_LAUNCH)
    with (
        open_view(request, write_line, os.environ) as view,
        saved_pid(request.save_pid),
    ):
        for text in request.notes:
            view.handle(Note(text=text, warning=True))
        shown: set[tuple[str, ...]] = set()

        def handle(event: Event) -> None:
            view.handle(event)
            failure = event.record.failure if isinstance(event, TrialFinished) else None
            if failure is not None and not request.quiet:
                shown.add(failure.log_tail)

        try:
            return command(request, handle)
        except NothingFeasibleError as error:
            if error.log_tail in shown:
                error.log_tail = ()
            raise
