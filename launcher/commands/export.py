"""``export RESULTS|BASE.yaml --to FRAMEWORK``: settings of another framework, or a Slurm job.

Of a results folder its optimum, of a base configuration the whole training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.core import ConfigError, Precision, ResultsFolderError
from autoconf_launch.core import config_keys as keys

from ..asked import ExportCommand, read_flags
from ..config_file import read_config
from ..export import Exported, Optimum, export_base, export_optimum, resumable_job
from ..report import SCHEMA_VERSION, save_file
from ..results import Results, read_file, read_results


def export(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, neither a results folder nor a base configuration, or no
            optimum in the folder.
        ResultsFolderError: its journal is damaged.
    """
    words, has_command, command = _split(arguments)
    flags = read_flags(ExportCommand, words)
    if flags.sbatch is not None:
        yield from _export_job(flags, flags.sbatch, command)
        return
    if flags.results is None or flags.to is None or has_command:
        raise ConfigError(
            "export needs a results folder or a base configuration and --to FRAMEWORK, or "
            "--sbatch 'OPTIONS' and a command after --."
        )
    path = flags.results
    if path.is_file():
        name, exported = path.name, _export_file(path, flags.to)
    else:
        optimum = _optimum(read_results(path))
        name, exported = optimum.name, export_optimum(optimum, flags.to)
    if flags.json:
        yield json.dumps(_document(name, flags.to, exported), indent=2)
    elif flags.output is None:
        yield exported.text.rstrip("\n")
    else:
        save_file(flags.output, lambda file: file.write(exported.text))
        yield f"{name} is written to {flags.output}."
        yield from (f"not expressed: {sentence}" for sentence in exported.left_out)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """The words before ``--``, True if there is a ``--``, and the words after it."""
    if "--" not in arguments:
        return arguments, False, ()
    at = list(arguments).index("--")
    return arguments[:at], True, arguments[at + 1 :]


def _export_job(flags: ExportCommand, options: str, command: Sequence[str]) -> Iterator[str]:
    if flags.results is not None or flags.to is not None or flags.json:
        raise ConfigError("--sbatch writes a job of a command; omit the folder, --to and --json.")
    text = resumable_job(command, options, Path.cwd())
    if flags.output is None:
        yield text.rstrip("\n")
    else:
        save_file(flags.output, lambda file: file.write(text))
        yield f"The job is written to {flags.output}; submit it with sbatch."


def _export_file(path: Path, framework: str) -> Exported:
    document = read_config(path)
    try:
        return export_base(document, framework)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _optimum(results: Results) -> Optimum:
    winner = results.summary().decision.winner
    if winner is None:
        raise ConfigError(
            f"{results.folder} has no measured trial yet, so there is no optimum to export."
        )
    config = results.baseline_config
    on = [
        kind
        for path, kind in ((keys.BF16, Precision.BF16), (keys.FP16, Precision.FP16))
        if config is not None and config.get(path) is True
    ]
    return Optimum(
        name=winner.trial.name,
        candidate=winner.trial.candidate,
        nodes=_nodes(results),
        precision=on[0] if on else None,
    )


def _nodes(results: Results) -> int:
    """Machines of the run, as its environment file lists their devices."""
    try:
        document = json.loads(read_file(results.paths.environment))
        return len({device["host"] for device in document["devices"]}) or 1
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ResultsFolderError):
        return 1


def _document(name: str, framework: str, exported: Exported) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "trial": name,
        "to": framework,
        "text": exported.text,
        "not_expressed": list(exported.left_out),
    }
