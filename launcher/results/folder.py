"""Open a results folder for one controller: lease, journal, earlier records."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.core import (
    SAVED,
    FailureKind,
    ResultsFolderError,
    drop_notes,
    is_trials,
    noted_folders,
    noted_paths,
    take_in,
    take_in_all,
)

from .fingerprints import differences
from .journal import Fingerprint, Journal, JournalContents, read_journal
from .lease import Lease, is_held
from .own_files import no_writing_by_others
from .paths import PROFILE, SECOND_PROFILE, ResultsPaths

_GOES_ON = (FailureKind.OUT_OF_MEMORY, FailureKind.PREEMPTED)
"""Failures of a baseline that the search goes on after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFolder:
    """A folder that is ours until the ``with`` ends.

    ``notes``: sentences for the user.
    ``profiled_now``: the profile run in it was made by this command.
    """

    journal: Journal
    contents: JournalContents
    notes: tuple[str, ...] = ()
    profiled_now: bool = False

    def restart(self) -> OpenFolder:
        """The folder without what was measured in another start of the script."""
        self.journal.write_restart()
        kept = JournalContents(fingerprint=self.contents.fingerprint)
        return replace(self, contents=kept)


@contextmanager
def open_folder(
    paths: ResultsPaths, fingerprint: Fingerprint, *, fresh: bool
) -> Iterator[OpenFolder]:
    """Go on with what the folder holds, or start anew beside it.

    Old results are moved aside, never deleted: on request, where they were measured of
    something else (what was measured of the same before then comes back), or where the script
    failed as it is given, which it may do no more. What launches left among the user's files is
    taken in at both ends.

    Raises:
        ResultsFolderError: another controller holds the folder, it cannot be written, or others
            can decide what is in it.
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
    """Take in what is left, and remove the named pipes by which launches passed on the turn."""
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
    """Move what killed trials left in the working directory, and say each file.

    Notes of others move nothing: a folder that was handed over may name any file.
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
    """The last results of the same that were moved aside, unless somebody works there."""
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
    if changed := differences(contents.fingerprint, new):
        return f"Starting over because {' and '.join(changed)} changed"
    return None if any(r.measurement for r in contents.history) else _baseline_failed(contents)


def _baseline_failed(contents: JournalContents) -> str | None:
    """A failed baseline's cause may be gone, and there is nothing else to lose."""
    own = next((r for r in reversed(contents.records) if r.trial.number == 0), None)
    if own is None or own.failure is None or own.failure.kind in _GOES_ON:
        return None
    return f"Starting over because nothing was measured before ({own.failure.kind.value})"
