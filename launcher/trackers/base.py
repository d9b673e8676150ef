"""The extension point Tracker, and what it is told.

A tracker works in a process of its own (worker), so it may take its time, fail or hang. It is
told the kind of a failure and no line of any log: what it sends may leave this machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar

from autoconf_launch.core import DecodeError, KnobValue, decode, encode

Parameters: TypeAlias = tuple[tuple[str, KnobValue], ...]
"""Knobs by their canonical names; tuples are written out."""

Metrics: TypeAlias = tuple[tuple[str, float], ...]
"""Finite numbers; the unit is the last part of each name."""


class Phase(str, Enum):
    """Why a trial was launched."""

    SEARCH = "search"
    AGAIN = "again"
    ROUND = "round"
    SOAK = "soak"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """What all runs of a study share.

    Attributes:
        id: the same in each session that goes on with the study.
        name: of the model, with its size where that is known before the study.
        project: None: the tracker's own variable, else ``autoconf-launch``.
        folder: an absolute path, the tracker's alone.
        api_key_file: its first line is the key; read it as late as possible, show it nowhere.
    """

    id: str
    name: str
    project: str | None
    folder: str
    api_key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedTrial:
    """One launch that is over, a run of its own.

    Attributes:
        key: of this launch in its study.
        run: model, size and parameters; usable as a file name.
        failure: its kind; None where the trial was measured.
    """

    key: str
    run: str
    number: int
    phase: Phase
    parameters: Parameters
    metrics: Metrics
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBest:
    """The best so far, after ``finished`` launches of the study."""

    key: str
    finished: int
    run: str
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedChoice:
    """What the study chose."""

    key: str
    run: str
    parameters: Parameters
    metrics: Metrics


Entry: TypeAlias = TrackedTrial | TrackedBest | TrackedChoice


class Tracker(Protocol):
    """Keeps the runs of one study; made by a factory that takes a :class:`TrackedStudy`.

    A factory in the table has ``requires``, the package that it imports when it is called.
    Any exception is a warning to the user, and the next entry comes all the same.
    """

    @property
    def where(self) -> str:
        """Where the runs can be found."""

    @property
    def trouble(self) -> str | None:
        """What is not as the user may expect, in one sentence."""

    def log_trial(self, trial: TrackedTrial) -> None:
        """Keep one launch."""

    def log_best(self, best: TrackedBest) -> None:
        """Keep the best so far with the study."""

    def log_choice(self, choice: TrackedChoice) -> None:
        """Keep the final choice with the study, which is then complete."""

    def close(self) -> None:
        """Let everything reach its place; without a choice, the study was interrupted."""


_Message = TypeVar("_Message", "Setup", "News")
_KINDS: MappingProxyType[str, type[Entry]] = MappingProxyType(
    {"trial": TrackedTrial, "best": TrackedBest, "choice": TrackedChoice}
)

DONE = b"\n"
"""The answer to the setup and to each entry, once the tracker is through with it."""

CLOSING_GRACE_S = 20.0
"""Time that a tracker has to end once it has been told everything."""

_LONGER_S = 5.0
"""After that the launcher ends it; where that is dead, it ends itself so much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first line: which tracker, for which study; see ``TrackedStudy``."""

    tracker: str
    study: str
    project: str | None
    folder: str
    api_key_file: str | None
    grace_s: float = CLOSING_GRACE_S + _LONGER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A sentence from the tracker for the user."""

    text: str
    warning: bool


def message_line(message: Setup | News) -> bytes:
    """The first line, or a line of a tracker's answer."""
    return _line(encode(message))


def read_message(kind: type[_Message], line: bytes) -> _Message:
    """A message of this kind.

    Raises:
        DecodeError: the line is not one, or was torn.
    """
    return decode(kind, _parse_line(line))


def entry_line(entry: Entry) -> bytes:
    """A line of what a tracker is to keep."""
    kind = next(name for name, known in _KINDS.items() if isinstance(entry, known))
    return _line({"kind": kind, "entry": encode(entry)})


def read_entry(line: bytes) -> Entry:
    """What such a line says.

    Raises:
        DecodeError: it is not an entry, or was torn.
    """
    document = _parse_line(line)
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise DecodeError("a line that is not an entry")
    entry: Entry = decode(kind, document.get("entry"))
    return entry


def _line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _parse_line(line: bytes) -> dict[str, object]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error)) from error
    if not isinstance(document, dict):
        raise DecodeError("a line that is not an object")
    return document
