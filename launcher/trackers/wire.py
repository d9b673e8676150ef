"""Lines between the launcher and a tracker's process. Not: either end (outlet, worker)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType

from autoconf_launch.core import DecodeError, decode, encode

from .base import Entry, TrackedBest, TrackedChoice, TrackedTrial

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


def setup_line(setup: Setup) -> bytes:
    """As the first line."""
    return _line(encode(setup))


def read_setup(line: bytes) -> Setup:
    """From the first line.

    Raises:
        DecodeError: it is another one.
    """
    return decode(Setup, _parsed(line))


def entry_line(entry: Entry) -> bytes:
    """As one of the lines that follow."""
    kind = next(name for name, known in _KINDS.items() if isinstance(entry, known))
    return _line({"kind": kind, "entry": encode(entry)})


def read_entry(line: bytes) -> Entry:
    """From one of the lines that follow.

    Raises:
        DecodeError: it is not an entry, or was torn.
    """
    document = _parsed(line)
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise DecodeError("a line that is not an entry")
    entry: Entry = decode(kind, document.get("entry"))
    return entry


def news_line(news: News) -> bytes:
    """As a line of the answer."""
    return _line(encode(news))


def read_news(line: bytes) -> News:
    """From a line of the answer.

    Raises:
        DecodeError: it is not news, or was torn.
    """
    return decode(News, _parsed(line))


def _line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, object]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise DecodeError(str(error)) from error
    if not isinstance(document, dict):
        raise DecodeError("a line that is not an object")
    return document
