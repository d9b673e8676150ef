"""``doctor``: abilities of the hosts of a launch, measured there in seconds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import ClusterSpec, ConfigError, HardwareError, RawConfig

from ..asked import read_flags
from ..doctor import HostChecks, read_blocked, read_checks
from ..events import Event, Note
from ..hosts import engine_for, find_cluster, pod_text, require_one_start
from ..launch import STDERR_LOG, STDOUT_LOG, plan_launch
from ..plan import LaunchPlan
from ..report import (
    blocked_text,
    cluster_file,
    doctor_document,
    doctor_lines,
    problems,
    require_gpus,
    save_file,
)
from ..request import DoctorCommand, LaunchRequest
from ..spelling import Rendered
from .launch import run_to_end

_CHECKS = "autoconf_launch.runtime.host_checks"


def doctor(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, or hosts that cannot be read.
        HardwareError: a host cannot be used, or something is wrong with one.
    """
    flags = read_flags(DoctorCommand, arguments)
    request = LaunchRequest(
        script=_CHECKS,
        kind="module",
        processes=flags.processes,
        hosts=flags.hosts,
        remote=flags.remote,
        local_rank_flag="",
    )
    require_one_start(request.hosts)
    notes: list[Event] = []
    cluster = find_cluster(request, notes.append)
    texts = [note.text for note in notes if isinstance(note, Note)]
    yield from (f"autoconf-launch: {text}" for text in (pod_text(), *texts) if text)
    if flags.save and not flags.save.parent.is_dir():  # before a minute is spent on measuring
        raise ConfigError(f"--save {flags.save} cannot be written: its folder does not exist.")
    if flags.save and not flags.measure_gpu:
        require_gpus(cluster)
    checks = measure_hosts(request, cluster, kernels=flags.measure_gpu)
    if flags.save:
        text = cluster_file(cluster, checks)
        save_file(flags.save, lambda file: file.write(text), "--save")
    if flags.json:
        yield json.dumps(doctor_document(cluster, checks), indent=2)
    else:
        yield from doctor_lines(cluster, checks)
    if count := len(list(problems(checks))):
        raise HardwareError(f"{count} of the checks found something wrong.")


def measure_hosts(
    request: LaunchRequest, cluster: ClusterSpec, *, kernels: bool = False
) -> HostChecks:
    """Launch the checks on every slot, with its kernels if wanted, and read what they print.

    Raises:
        HardwareError: a host does not reach a port of another one, or a rank failed; its last
            line says why.
    """
    with (
        tempfile.TemporaryDirectory(prefix=".autoconf-launch-", dir=Path.cwd()) as folder,
        tempfile.NamedTemporaryFile(prefix=".autoconf-launch-doctor-", dir=Path.cwd()) as sign,
    ):
        arguments = (sign.name, str(len(cluster.nodes)), *["kernels"] * kernels)
        rendered = Rendered(config=RawConfig({}), script_args=arguments)
        plan = _safely(replace(plan_launch(request, cluster, rendered), folder=folder))
        code = run_to_end(plan, engine_for(request, cluster))
        if code:
            raise HardwareError(f"A check failed with exit code {code}: {_last_line(folder)}")
        printed = Path(folder, STDOUT_LOG).read_text(errors="replace")
    if blocked := read_blocked(printed, cluster):
        raise HardwareError(blocked_text(blocked))
    return read_checks(printed, cluster)


def _safely(plan: LaunchPlan) -> LaunchPlan:
    """The same without modules from the current folder."""
    safe = (("PYTHONSAFEPATH", "1"),)
    ranks = (replace(rank, environment=(*rank.environment, *safe)) for rank in plan.ranks)
    return replace(plan, ranks=tuple(ranks))


def _last_line(folder: str) -> str:
    said = Path(folder, STDERR_LOG).read_text(errors="replace").strip().splitlines()
    return said[-1] if said else "it printed nothing."
