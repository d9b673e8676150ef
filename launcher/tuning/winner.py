"""The files that a tuning run leaves for people: summary, best configuration, command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.autotuner.playoff import Summary
from autoconf_launch.core import Edit, RawConfig, visible
from autoconf_launch.core import config_keys as keys

from ..flags import launch_flags
from ..launch import as_typed, in_training
from ..report import (
    SCHEMA_VERSION,
    details_text,
    result_text,
    summary_document,
    summary_text,
    table_text,
    trial_rows,
    trials_csv,
)
from ..request import LaunchRequest
from ..results import (
    DS_CONFIG,
    ResultsPaths,
    document_without_secrets,
    read_journal,
    shell_command,
    write_guarded,
    write_plain,
)
from ..script import ScriptSource
from ..spelling import Dialect, Rendered, find_argument
from .trial_io import write_json

_OMITTED = {keys.ACCUMULATION: 1, keys.ZERO_STAGE: 0}
"""Meaning of a missing key; "auto" means the same."""


def write_results(
    paths: ResultsPaths,
    summary: Summary,
    *,
    request: LaunchRequest,
    source: ScriptSource,
    winner: Rendered | None,
) -> str:
    """Write summary, table of trials, best configuration and command; returns the text to show.

    Without a winner, files of an earlier winner are removed.
    """
    command = optimal_command(request, winner) if winner else ""
    edits = changes_to_user(source, winner) if winner else ()
    for path in () if winner else paths.optimum:
        path.unlink(missing_ok=True)
    result = result_text(summary, edits, command, _from_here(paths.results))
    text = summary_text(table_text(summary), result, details_text(summary))
    write_plain(paths.summary_text, visible(text))
    write_json(paths.summary_json, summary_document(summary, edits, command))
    write_plain(paths.trials_csv, trials_csv(trial_rows(summary)))
    if winner:
        write_guarded(paths.optimal_config, _optimal_config(winner, paths))
        for file in winner.files:
            write_guarded(paths.results / file.name, file.text)
        write_plain(paths.optimal_command, command + "\n")
        _write_script(paths.optimal_script, command)
    return result


def write_answer(paths: ResultsPaths, text: str) -> None:
    """Write the answer of a search as the end of its runs, for ``show``, if it ran some.

    Raises:
        ResultsFolderError: a file cannot be written.
    """
    if not paths.journal.is_file():
        return
    experiments = len(read_journal(paths.journal).records)
    ended = {"schema_version": SCHEMA_VERSION, "spaces": [{"num_experiments": experiments}]}
    paths.write(paths.summary_text, visible(text) + "\n")
    paths.write(paths.summary_json, json.dumps(ended) + "\n")


def render_winner(
    summary: Summary, dialect: Dialect, source: ScriptSource, paths: ResultsPaths
) -> Rendered | None:
    """The winner as a launch spells it, its configuration at the optimal path."""
    if summary.decision.winner is None:
        return None
    path = _from_here(paths.optimal_config)
    return in_training(dialect.render(summary.decision.winner.trial.candidate, source, path))


def _from_here(path: Path) -> str:
    """The path as a person would type it: relative below the working directory, else absolute."""
    whole = Path.cwd() / path
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


def optimal_command(request: LaunchRequest, winner: Rendered) -> str:
    """The launch without tuning, quoted for a shell; secrets are read from variables."""
    changed = {**dict(request.variables), **dict(winner.environment)}
    variables = [f"{name}={value}" for name, value in changed.items()]
    prefix = ("env", *variables) if variables else ()
    flags = launch_flags(as_typed(request))
    words = (*prefix, "autoconf-launch", *flags, request.script, *winner.script_args)
    return shell_command(words)


def changes_to_user(source: ScriptSource, winner: Rendered) -> tuple[Edit, ...]:
    """Differences to the user's launch: keys of their document, then their arguments.

    A key that is written although its absence means the same is not a change. A dialect that sets
    :attr:`Rendered.before` has the arguments among its names.
    """
    before = winner.before or source.config.without(keys.AUTOTUNING)
    edits = tuple(edit for edit in before.diff(winner.config) if not _means_the_same(edit))
    if winner.before is not None:
        return edits
    return (*edits, *_changed_arguments(source, winner.script_args))


def _means_the_same(edit: Edit) -> bool:
    omitted = "auto", _OMITTED.get(edit.path)
    return edit.before is None and edit.after is not None and edit.after in omitted


def _changed_arguments(source: ScriptSource, after: tuple[str, ...]) -> Iterator[Edit]:
    """Arguments with another value; the path of the configuration is not a setting."""
    position, before = source.config_argument, source.script_args
    for flag in dict.fromkeys(word.partition("=")[0] for word in after if word[:2] == "--"):
        new, old = find_argument(after, (flag,)), find_argument(before, (flag,))
        if old and position is not None and old.index in (position - 1, position):
            continue
        if new and (old is None or old.value != new.value):
            yield Edit((flag,), old.value if old else None, new.value)


def _optimal_config(winner: Rendered, paths: ResultsPaths) -> str:
    """A file that only people read needs no secret."""
    if paths.config_stem == DS_CONFIG:
        return winner.config.to_json() + "\n"
    return RawConfig(document_without_secrets(winner.config.to_dict())).to_json() + "\n"


def _write_script(path: Path, command: str) -> None:
    text = f"#!/bin/sh\ncd {shlex.quote(str(Path.cwd()))} || exit 1\nexec {command}\n"
    write_plain(path, text)
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)  # who may read it may run it
