"""A study that goes on in another space: which earlier records count there. Not: the search.

What was measured is the same (the fingerprint says so); what may be tried is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from autoconf_launch.autotuner.space import Record, SearchSpace, candidate_name

from ..events import Listener, Note
from ..results import JournalContents, OpenFolder, SpaceLine

_DERIVED = ("accumulation", "data_parallel")


def of_space(folder: OpenFolder, space: SearchSpace, listener: Listener) -> JournalContents:
    """What the journal says of candidates of this space; a change is said.

    The journal learns of the change, so that every reader of it tells the same records apart.
    """
    contents = folder.contents
    line = SpaceLine(
        digest=space_digest(space),
        baseline=candidate_name(space.baseline),
        left_out=tuple(dict.fromkeys(r.trial.name for r in _outside(contents.history, space))),
    )
    if contents.space == line:
        return contents
    folder.journal.write_space(line)
    changed = contents.in_space(line)
    was_known = contents.space is not None or bool(line.left_out)
    if contents.history and was_known:
        listener(Note(text=_sentence(changed, space)))
    return changed


def space_digest(space: SearchSpace) -> str:
    """Digest of the baseline and of all candidates in their order, in hex."""
    found = hashlib.sha256(repr(space.baseline).encode())
    for name, column in space.table.columns:
        found.update(f"{name} {column.categories}".encode())
        found.update(column.codes.astype("<i8").tobytes())
    return found.hexdigest()


def _outside(records: Sequence[Record], space: SearchSpace) -> list[Record]:
    candidates = {record.trial.candidate for record in records}
    inside = {x for x in candidates if x == space.baseline or len(space.table.find(x))}
    return [record for record in records if record.trial.candidate not in inside]


def _sentence(changed: JournalContents, space: SearchSpace) -> str:
    """How many records are used again, how many are not, and why."""
    count, used = len(changed.history), len(changed.records)
    if count == used:
        return f"What is searched has changed; all {count} earlier trials are used again."
    missing = _missing_values(changed.others, space) or ("their combination of values",)
    why = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} no longer searched"
    return (
        f"What is searched has changed: {used} of {count} earlier trials are used again; "
        f"{count - used} not, as {why}; the journal keeps them."
    )


def _missing_values(others: Sequence[Record], space: SearchSpace) -> tuple[str, ...]:
    """Values that only records outside have."""
    missing: dict[str, None] = {}
    for record in others:
        candidate = record.trial.candidate
        for name, column in space.table.columns:
            value = dict(candidate.extras).get(name, getattr(candidate.layout, name, None))
            known = getattr(space.baseline.layout, name, value) == value
            if value is None or known or name in _DERIVED:
                continue
            code = column.code_of(value)
            if code is None or not (column.codes == code).any():
                missing[f"{name} {getattr(value, 'value', value)}"] = None
    return tuple(missing)
