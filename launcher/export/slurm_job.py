"""A batch script of Slurm that continues a tune, job after job, until it is complete."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..machine import OUR_COMMAND
from ..results import shell_command

_OPTIONS = ("--signal=B:USR1@120", "--requeue", "--open-mode=append")
"""Slurm checks its limits twice a minute, so its signal may come 30 s late."""
_SCRIPT = """\
#!/bin/bash
#SBATCH {ours}
{users}
# Shortly before the limit the tune ends its trials and exits with 75; then the job is queued again
# and the same command goes on with what it has measured.
cd {folder} || exit 2
is_late=
trap 'is_late=1; kill -USR1 "$!" 2>/dev/null' USR1
trap 'kill -TERM "$!" 2>/dev/null' TERM
{command} &
wait "$!"
while kill -0 "$!" 2>/dev/null; do  # a signal came while it ran
  wait "$!"
done
wait "$!"
code=$?
[ -z "$is_late" ] || [ "$code" != 138 ] || code=75  # it did not listen yet, or had finished
if [ "$code" = 75 ] && [ -n "$is_late" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


def resumable_job(words: Sequence[str], options: str, folder: Path) -> str:
    """The text of the script; secrets among the words are read from variables in the job.

    ``words`` follow ``autoconf-launch``; ``options`` for sbatch, such as ``-N 2 -t 4:00:00``,
    override ours.

    Raises:
        ConfigError: the options are not words of one line, or there is no command.
    """
    if not words:
        raise ConfigError("export --sbatch needs the command of a tune after --.")
    try:
        users = shlex.split(options)
    except ValueError as error:
        raise ConfigError(f"--sbatch is {options!r}: {error}; close it.") from error
    if not all(word.isprintable() for word in users) or (users and not users[0].startswith("-")):
        raise ConfigError(f"--sbatch is {options!r}, but must be options of sbatch in one line.")
    return _SCRIPT.format(
        ours=" ".join(_OPTIONS),
        users=f"#SBATCH {shlex.join(users)}" if users else "",
        folder=shlex.quote(str(folder)),
        command=shell_command((*OUR_COMMAND, *words)),
    )
