"""A plain launch: start the ranks, pass signals on, return their exit code."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import PARALLELISM, ClusterSpec

from ..config_file import is_plain_json
from ..dialects import choose_dialect
from ..engines import Backend, make_engine
from ..events import Listener, Note
from ..hosts import engine_for, find_cluster, require_one_start
from ..interrupts import passing_signals_to
from ..launch import plan_launch, read_script
from ..plan import LaunchPlan
from ..request import LaunchRequest
from ..script import ScriptSource
from ..spelling import Rendered, is_open

_LONG_S = 3600.0


def launch(request: LaunchRequest, listener: Listener) -> int:
    """Run the training; returns its exit code.

    A configuration that leaves something open, or is not plain JSON, is resolved first into a
    file that lives as long as the launch. With ``--dry-run``, which only some engines take,
    the objects of the launch are printed, and nothing is started.
    """
    if request.dry_run:
        sys.stdout.write(make_engine(request.remote).launch_text(request))
        return 0
    require_one_start(request.hosts)
    request, source = read_script(request)
    cluster = find_cluster(request, listener)
    backend = engine_for(request, cluster, listener)
    with tempfile.TemporaryDirectory(prefix="autoconf-launch-") as folder:
        rendered = _resolve(source, cluster, Path(folder), listener)
        return run_to_end(plan_launch(request, cluster, rendered), backend)


def run_to_end(plan: LaunchPlan, backend: Backend) -> int:
    """Submit a plan and wait for it; signals go to its ranks."""
    job = backend.submit(plan)
    with passing_signals_to(lambda number: backend.send_signal(job, number)):
        while True:
            backend.wait([job], _LONG_S)
            end = backend.poll([job])[0]
            if end is not None:
                return end.exit_code


def _resolve(
    source: ScriptSource, cluster: ClusterSpec, folder: Path, listener: Listener
) -> Rendered:
    as_given = Rendered(config=source.config, script_args=source.script_args)
    if source.config_argument is None or not _needs_resolving(source):
        return as_given
    dialect = choose_dialect(source).dialect
    if not dialect.reads_document:  # others fill in "auto" themselves
        return as_given
    user = dialect.read(source, world_size=len(cluster.devices))
    for warning in user.warnings:
        listener(Note(text=warning, warning=True))
    path = folder / "ds_config.json"
    rendered = dialect.render(user.baseline, source, str(path))
    path.write_text(rendered.config.to_json() + "\n")
    return replace(as_given, script_args=rendered.script_args)


def _needs_resolving(source: ScriptSource) -> bool:
    argument = source.script_args[source.config_argument or 0]
    path = Path(argument.partition("=")[2] if argument.startswith("-") else argument)
    return PARALLELISM in source.config or not is_plain_json(path) or is_open(source.config)
