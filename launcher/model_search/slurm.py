"""Text of batch scripts for Slurm. Not: the folder that they are written to (cluster_files).

The order of options is that of NVIDIA's writer (auto_configurator, 24.12), so that files of both
can be compared line by line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autoconf_launch.core import ConfigError

SHEBANG = "#!/usr/bin/env bash"
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]*")
"""What an option of sbatch is written with as it is; everything else stands in quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One job; None and empty leave an option out.

    Attributes:
        commands: each in a step of its own; texts for a shell.
        flags: of ``srun``, already quoted.
        dependency: numbers of jobs that must have ended, or Slurm's own words.
        time: Slurm's time limit.
    """

    name: str
    commands: tuple[str, ...]
    nodes: int
    flags: str = ""
    tasks: int | None = None
    tasks_per_node: int | None = None
    gpus_per_task: int | None = None
    gpus_per_node: int | None = None
    dependency: str | tuple[str, ...] | None = None
    partition: str | None = None
    account: str | None = None
    mem: str | None = None
    exclusive: bool = False
    overcommit: bool = False
    exclude: tuple[str, ...] = ()
    output: str | None = None
    comment: str | None = None
    nodelist: str | None = None
    time: str | None = None


def sbatch_text(job: SlurmJob) -> str:
    """The whole script, with its last newline."""
    options = "".join(f"#SBATCH {option}\n" for option in _options(job))
    steps = "".join(f"srun {job.flags} sh -c {_quoted(command)}\n\n" for command in job.commands)
    return f"{SHEBANG}\n{options}\n{steps}set +x\n"


def mount_pair(mount: str) -> str:
    """``source:destination`` of a mount; a bare path stands at the same place inside."""
    return mount if ":" in mount else f"{mount}:{mount}"


def container_flags(container: str, mounts: Iterable[str], others: Iterable[str], log: str) -> str:
    """Flags of ``srun`` for a container; ``log`` is a path without its suffix."""
    parts = [
        f"--container-image {shlex.quote(container)}",
        f"--container-mounts {shlex.quote(','.join(map(mount_pair, mounts)))}",
        *(shlex.join(_words(other)) for other in others),
        f"-o {shlex.quote(log)}.log",
        f"-e {shlex.quote(log)}.error",
    ]
    return f"{' '.join(parts)} "


def _options(job: SlurmJob) -> Iterator[str]:
    yield f"--nodes={job.nodes}"
    numbers = {
        "ntasks": job.tasks,
        "ntasks-per-node": job.tasks_per_node,
        "gpus-per-task": job.gpus_per_task,
        "gpus-per-node": job.gpus_per_node,
    }
    yield from (f"--{name}={value}" for name, value in numbers.items() if value is not None)
    if job.dependency:
        yield f"--dependency={_dependency(job.dependency)}"
    yield from (
        f"{flag} {_option(value)}"
        for flag, value in (("-p", job.partition), ("-A", job.account))
        if value
    )
    yield f"--job-name={_option(job.name)}"
    if job.mem is not None:
        yield f"--mem={_option(job.mem)}"
    yield from (f"--{name}" for name in ("exclusive", "overcommit") if getattr(job, name))
    texts = {
        "exclude": ",".join(job.exclude),
        "output": job.output,
        "comment": job.comment and _quoted(_one_line(job.comment)),
        "nodelist": job.nodelist,
        "time": job.time,
    }
    yield from (
        f"--{name}={value if name == 'comment' else _option(value)}"
        for name, value in texts.items()
        if value
    )


def _dependency(given: str | tuple[str, ...]) -> str:
    return given if isinstance(given, str) else f"afterany:{':'.join(given)}"


def _words(text: str) -> list[str]:
    """A user's further flags of srun, which may be several in one text."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cluster.srun_args has {text!r}: {error}; close it.") from error


def _option(value: str) -> str:
    """As sbatch reads it from its line: in quotes where it has more than plain characters."""
    value = _one_line(value)
    return value if _PLAIN.fullmatch(value) else shlex.quote(value)


def _one_line(value: str) -> str:
    if value.isprintable():
        return value
    raise ConfigError(f"{value!r} cannot stand in a batch script: it must be one printable line.")


def _quoted(text: str) -> str:
    """Always in quotes, whatever the text."""
    plain = shlex.quote(text)
    return plain if plain.startswith("'") else f"'{text}'"
