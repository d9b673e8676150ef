"""Open a results folder for one controller, if what it measured is still the same."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.space import AutotuningSettings
from autoconf_launch.core import (
    SAVED,
    Candidate,
    ClusterSpec,
    ConfigError,
    FailureKind,
    Layout,
    RawConfig,
    Recompute,
    ResultsFolderError,
    drop_notes,
    is_trials,
    noted_folders,
    noted_paths,
    take_in,
    take_in_all,
)
from autoconf_launch.core import config_keys as keys

from ..request import LaunchRequest
from ..script import NamedFile, ScriptSource, script_path
from ..spelling import Dialect, Rendered, UserSettings, find_argument
from .journal import Fingerprint, Journal, JournalContents, read_journal
from .lease import Lease, is_held
from .own_files import no_writing_by_others
from .paths import PROFILE, SECOND_PROFILE, ResultsPaths
from .secrets import with_digests, without_secrets, write_private

_VERSIONED = ("autoconf-launch", "torch", "numpy")
_ANYWHERE = "trial/ds_config.json"
_PLAIN = ((1, Recompute.FULL), (3, Recompute.FULL), (0, Recompute.NONE))
"""ZeRO stages and recomputation, defaults last: a document may omit a default."""
_GOES_ON = (FailureKind.OUT_OF_MEMORY, FailureKind.PREEMPTED)
"""Failures of a baseline after which the search goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """The user's settings with each searched knob at one value.

    ``global_batch`` is the same for every candidate; None if it may change.
    """

    rendered: Rendered
    global_batch: int | None


def render_unsearched(
    dialect: Dialect, source: ScriptSource, user: UserSettings
) -> Unsearched | None:
    """The measured part of the user's settings; None if this framework cannot spell it."""
    ranks = user.baseline.layout.world_size
    for stage, recompute in _PLAIN:
        plain = Layout(data_parallel=ranks, zero_stage=stage, recompute=recompute)
        try:
            rendered = dialect.render(Candidate(layout=plain), source, _ANYWHERE)
        except ConfigError:
            continue
        return Unsearched(rendered=rendered, global_batch=user.batch_rule.pinned)
    return None


def fingerprint(
    request: LaunchRequest,
    cluster: ClusterSpec,
    source: ScriptSource,
    settings: AutotuningSettings,
    given: Unsearched | None = None,
) -> Fingerprint:
    """Everything that a measurement depends on and the search does not change.

    Secrets are digests. Without ``given`` the values of searched knobs count, too.
    """
    arguments = given.rendered.script_args if given else source.script_args
    return Fingerprint(
        script=_digest(_script_bytes(request) + _start_bytes(request)),
        arguments=with_digests(
            argument for index, argument in enumerate(arguments) if index != source.config_argument
        ),
        config=_config_digest(source, settings, given),
        hardware=(
            *(f"{d.name}, limit {request.memory_limit_bytes}" for d in cluster.devices),
            *((str(request.binding),) if request.binding else ()),
        ),
        versions=versions(),
    )


def versions() -> tuple[tuple[str, str], ...]:
    """Versions of Python and of the packages that a measurement depends on."""
    found = [("python", platform.python_version())]
    for name in _VERSIONED:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def write_environment(
    paths: ResultsPaths,
    request: LaunchRequest,
    cluster: ClusterSpec,
    settings: AutotuningSettings,
    *,
    refused: str = "",
) -> None:
    """Write ``env.json``, without secrets and only for its owner.

    ``refused``: why the budget has no room for the same command's next launch.
    """
    document = {
        "metric": settings.metric,
        "effort": settings.effort,
        "versions": dict(versions()),
        "executable": Path(sys.executable).name,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "devices": [
            {"host": node.host, "name": device.name, "memory_bytes": device.memory_bytes}
            for node in cluster.nodes
            for device in node.devices
        ],
        "script": Path(request.script).name,
        "argv": list(without_secrets(request.argv)),
        **({"refused": refused} if refused else {}),
    }
    write_private(paths.environment, json.dumps(document, indent=2) + "\n")


def _script_bytes(request: LaunchRequest) -> bytes:
    path = script_path(request)
    return path.read_bytes() if path.is_file() else request.script.encode()


def _start_bytes(request: LaunchRequest) -> bytes:
    """Distinguishes a module from the same file started by path; its name has its package."""
    return f"-m {request.script}".encode() if request.kind == "module" else b""


def _config_digest(
    source: ScriptSource, settings: AutotuningSettings, given: Unsearched | None
) -> str:
    steps = f"{settings.start_profile_step}-{settings.end_profile_step}"
    config = given.rendered.config if given else source.config
    arguments = given.rendered.script_args if given else source.script_args
    as_they_are = [
        file.text
        for file in source.files
        if (file.position is None or file.position != source.config_argument)
        and not _is_replaced(file, source.script_args, arguments)
    ]
    made = (given.rendered.files, given.rendered.environment, given.global_batch) if given else ()
    parts = (
        _whatever_its_order(config.without(keys.AUTOTUNING).without((keys.SCHEMA_KEY,))),
        steps,
        as_they_are,
        _free_variables(source, given),
        (source.modules, source.composed),
        (source.words.dialect, source.words.arguments),
        made,
    )
    return _digest(" ".join(map(str, parts)).encode())


def _is_replaced(file: NamedFile, given: tuple[str, ...], rendered: tuple[str, ...]) -> bool:
    if file.position is None:
        return find_argument(rendered, (file.flag,)) is not None
    return rendered[file.position] != given[file.position]


def _whatever_its_order(config: RawConfig) -> str:
    """The document; a key that was ``auto`` is put at its end."""
    return json.dumps(json.loads(config.to_json()), sort_keys=True)


def _free_variables(source: ScriptSource, given: Unsearched | None) -> tuple[tuple[str, str], ...]:
    changed = {name for name, _ in given.rendered.environment} if given else set()
    return tuple(pair for pair in source.environment if pair[0] not in changed)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFolder:
    """A folder that is ours until the ``with`` ends.

    ``notes``: sentences for the user. ``profiled_now``: this command made its profile run.
    """

    journal: Journal
    contents: JournalContents
    notes: tuple[str, ...] = ()
    profiled_now: bool = False

    def restart(self) -> OpenFolder:
        """The folder without measurements that were made with another start of the script."""
        self.journal.write_restart()
        kept = JournalContents(fingerprint=self.contents.fingerprint)
        return replace(self, contents=kept)


@contextmanager
def open_folder(
    paths: ResultsPaths, fingerprint: Fingerprint, *, fresh: bool
) -> Iterator[OpenFolder]:
    """Continue with the folder's records, or start anew next to it.

    Old results are moved aside, never deleted: on request, if they were measured with other inputs
    (earlier results of the same inputs come back), or if the script itself failed, which may be
    fixed. Files that launches left among the user's are collected at both ends.

    Raises:
        ResultsFolderError: another controller holds the folder, it cannot be written, or others
            can decide its content.
    """
    with ExitStack() as stack:
        stack.enter_context(no_writing_by_others())
        journal = _take(paths, stack)
        is_anew = fresh and paths.journal.stat().st_size > 0  # whether or not it can be read
        before = _read_if_possible(journal) if is_anew else journal.read()
        notes = list(_take_in_left(paths, before))
        contents = JournalContents() if is_anew else before
        reason = "Starting over as asked" if is_anew else _why_anew(contents, fingerprint)
        if reason:
            is_other = not is_anew and contents.fingerprint != fingerprint
            earlier = _measured_before(paths, fingerprint) if is_other else None
            moved = paths.move_aside()
            moved.lease.unlink(missing_ok=True)  # it went along; we hold its open file
            if earlier:
                earlier.move_back(paths)
            journal = _take(paths, stack)
            contents = journal.read()
            notes += (*_take_in_left(paths, contents), _on_move(reason, earlier, moved))
        if contents.fingerprint is None:
            journal.write_header(fingerprint)
        stack.callback(_tidy, paths.results)
        yield OpenFolder(journal=journal, contents=contents, notes=tuple(notes))


def _take(paths: ResultsPaths, stack: ExitStack) -> Journal:
    paths.make()
    paths.require_ours()
    lease = stack.enter_context(Lease(paths.lease, paths.chosen_by))
    return stack.enter_context(Journal(paths.journal, lease))


def _tidy(results: Path) -> None:
    """Collect remaining files, and remove named pipes."""
    take_in_all(results)
    for path in results.glob("*/*"):
        with suppress(OSError):
            if stat.S_ISFIFO(path.lstat().st_mode):
                path.unlink()


def _read_if_possible(journal: Journal) -> JournalContents:
    try:
        return journal.read()
    except ResultsFolderError:
        return JournalContents()


def _take_in_left(paths: ResultsPaths, contents: JournalContents) -> Iterator[str]:
    """Collect files that killed trials left in the working directory, with a sentence on each.

    Notes of others move nothing: a folder that was passed on may name any file.
    """
    own = {*contents.names, PROFILE, SECOND_PROFILE} if contents.fingerprint else set()
    here = Path.cwd()
    for folder in noted_folders(paths.results):
        is_known = folder.name in own
        paths.make_launch_folder(folder)
        noted = noted_paths(folder)
        if is_known:
            for path in take_in(folder, is_ours=False, below=here):
                yield f"Moved {path} to {folder / SAVED}: a killed trial had left it."
        else:
            drop_notes(folder)
        for path in noted:
            if not (is_known and is_trials(path, folder, here)):
                yield f"{path} stays: {folder} names it as written by a trial; check it yourself."


def _measured_before(paths: ResultsPaths, fingerprint: Fingerprint) -> ResultsPaths | None:
    """The last results of the same inputs that were moved aside and that no controller holds."""
    for aside in paths.moved_aside():
        try:
            aside.require_ours()
            contents = read_journal(aside.journal)
        except (OSError, ResultsFolderError):
            continue
        measured = any(record.measurement for record in contents.history)
        if measured and contents.fingerprint == fingerprint and not is_held(aside.lease):
            return aside
    return None


def _on_move(reason: str, earlier: ResultsPaths | None, moved: ResultsPaths) -> str:
    if earlier is None:
        return f"{reason}; the old results are kept in {moved.results}."
    return (
        f"This command was measured before: its results are back from {earlier.results}, and "
        f"those of the last command are kept in {moved.results}."
    )


def _why_anew(contents: JournalContents, new: Fingerprint) -> str | None:
    if contents.fingerprint is None:
        return None
    if changed := contents.fingerprint.differences(new):
        return f"Starting over because {' and '.join(changed)} changed"
    return None if any(r.measurement for r in contents.history) else _baseline_failed(contents)


def _baseline_failed(contents: JournalContents) -> str | None:
    """The cause of a failed baseline may be gone, and there is nothing else to lose."""
    own = next((r for r in reversed(contents.records) if r.trial.number == 0), None)
    if own is None or own.failure is None or own.failure.kind in _GOES_ON:
        return None
    return f"Starting over because nothing was measured before ({own.failure.kind.value})"
