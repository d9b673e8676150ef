"""Open a results folder for one controller: lease, journal, earlier records. Not: the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from .fingerprint import differences
from .journal import Fingerprint, Journal, JournalContents
from .lease import Lease
from .paths import ResultsPaths
from .saved_files import take_in_all


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

    Old results are moved aside, never deleted: on request, or where they were measured of
    something else. What launches left among the user's files is taken in at both ends.

    Raises:
        ResultsFolderError: another controller holds the folder, or it cannot be written.
    """
    with ExitStack() as stack:
        paths.make()
        lease = stack.enter_context(Lease(paths.lease, paths.chosen_by))
        journal = stack.enter_context(Journal(paths.journal, lease))
        take_in_all(paths.results, is_ours=False)
        contents = journal.read()
        reason = _why_anew(contents, fingerprint, fresh=fresh)
        notes: tuple[str, ...] = ()
        if reason:
            moved = paths.move_aside()  # the lease goes along: its file is open
            paths.make()
            lease = stack.enter_context(Lease(paths.lease, paths.chosen_by))
            journal = stack.enter_context(Journal(paths.journal, lease))
            contents = JournalContents()
            notes = (f"{reason}; the old results are kept in {moved}.",)
        if contents.fingerprint is None:
            journal.write_header(fingerprint)
        stack.callback(take_in_all, paths.results, is_ours=True)
        yield OpenFolder(journal=journal, contents=contents, notes=notes)


def _why_anew(contents: JournalContents, new: Fingerprint, *, fresh: bool) -> str | None:
    if contents.fingerprint is None:
        return None
    if fresh:
        return "Starting anew as asked"
    changed = differences(contents.fingerprint, new)
    return f"Starting anew because {' and '.join(changed)} changed" if changed else None
