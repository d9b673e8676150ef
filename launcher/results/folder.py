"""Open a results folder for one controller: lease, journal, earlier records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from autoconf_launch.core import FailureKind, ResultsFolderError, take_in_all

from .fingerprints import differences
from .journal import Fingerprint, Journal, JournalContents, read_journal
from .lease import Lease, is_held
from .paths import ResultsPaths

_GOES_ON = (FailureKind.OUT_OF_MEMORY, FailureKind.PREEMPTED, FailureKind.NODE_LOST)
"""Failures of a baseline that the search goes on after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFolder:
    """A folder that is ours until the ``with`` ends; ``notes`` are sentences for the user."""

    journal: Journal
    contents: JournalContents
    notes: tuple[str, ...] = ()


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
        ResultsFolderError: another controller holds the folder, or it cannot be written.
    """
    with ExitStack() as stack:
        paths.make()
        lease = stack.enter_context(Lease(paths.lease, paths.chosen_by))
        journal = stack.enter_context(Journal(paths.journal, lease))
        take_in_all(paths.results, is_ours=False)
        is_anew = fresh and paths.journal.stat().st_size > 0  # whether or not it can be read
        contents = JournalContents() if is_anew else journal.read()
        reason = "Starting over as asked" if is_anew else _why_anew(contents, fingerprint)
        notes: tuple[str, ...] = ()
        if reason:
            is_other = not is_anew and contents.fingerprint != fingerprint
            earlier = _measured_before(paths, fingerprint) if is_other else None
            moved = paths.move_aside()
            moved.lease.unlink(missing_ok=True)  # it went along; we hold its open file
            if earlier:
                earlier.move_back(paths)
            paths.make()
            lease = stack.enter_context(Lease(paths.lease, paths.chosen_by))
            journal = stack.enter_context(Journal(paths.journal, lease))
            contents = journal.read()
            take_in_all(paths.results, is_ours=False)
            notes = (_on_move(reason, earlier, moved),)
        if contents.fingerprint is None:
            journal.write_header(fingerprint)
        stack.callback(take_in_all, paths.results, is_ours=True)
        yield OpenFolder(journal=journal, contents=contents, notes=notes)


def _measured_before(paths: ResultsPaths, fingerprint: Fingerprint) -> ResultsPaths | None:
    """The last results of the same that were moved aside, unless somebody works there."""
    for aside in paths.moved_aside():
        try:
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
