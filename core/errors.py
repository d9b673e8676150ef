"""Errors that state the place, the value, the valid values and the remedy, and texts for display.

A trial that fails is a value (:class:`~.failures.Failure`); only an error that the user must fix
before anything can run is raised. The agent of a launch loads this file by its path.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that move a terminal's cursor, colour it or turn the direction of its text."""
SECRETS_VARIABLE = "AUTOCONF_LAUNCH_SECRETS"
"""Passes the secrets that the launcher knows to a trial, whose files and logs omit them."""
_CUT_HERE = ("\n", "\r", '"', "'", "...", "\u2026", "\u2026".encode().decode("latin-1"))
"""Marks at which a value was cut off."""
_MIXED = re.compile(r"\d.*[^\W\d]|[^\W\d].*\d")
"""A digit and a letter."""


class AutoconfError(Exception):
    """Base of every error that this project raises on purpose; its text is for the user."""

    def _render_traceback_(self) -> list[str]:
        """Text of a notebook instead of a traceback: no line of ours helps the user."""
        return [f"{type(self).__name__}: {self}", *getattr(self, "log_tail", ())]


class ConfigError(AutoconfError, ValueError):
    """The user's configuration or command line cannot mean anything."""


class ResultsFolderError(AutoconfError):
    """The results folder is locked by another controller, or cannot be written."""


class HardwareError(AutoconfError):
    """The machine lacks a requested resource: devices, or disk space."""


_LONGEST_NAME, _LONGEST_LIST = 100, 250
_LONGEST_LINE = 380


def nearest_known(name: str, known: Iterable[str]) -> str:
    """A phrase that helps with an unknown name.

    Returns:
        ``did you mean 'x'?`` with the nearest known name, otherwise ``known: a, b, c``.
    """
    names = sorted(known)
    plain = {one.lower(): one for one in reversed(names)}
    close = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), plain, n=1)
    if close:
        return f"did you mean '{plain[close[0]]}'?"
    listed = ", ".join(names)
    if len(listed) > _LONGEST_LIST:
        listed = f"{listed[:_LONGEST_LIST].rpartition(', ')[0]}, … ({len(names)} in all)"
    return f"known: {listed}"


def visible(text: str) -> str:
    """The text with its control characters written as escapes; lines and tabs stay."""
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """A message on one line, under 400 characters with the command's name before it.

    A longer one loses its middle, which is mostly a value of the user's.
    """
    line = " ".join(visible(text).split())
    head = 2 * _LONGEST_LINE // 3
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:head]} … {line[head + 3 - _LONGEST_LINE :]}"


_ANYWHERE, _ALONE = 8, 6


class SecretFilter:
    """Texts, and a stream of bytes, with ``${HF_TOKEN}`` in place of known secrets.

    A value is replaced anywhere if it has at least eight characters and is more than one plain
    word or number; its beginning is, too, if the value was cut off after at least eight. A plain
    word or number, and a value of six or seven characters with letters and digits, are replaced
    only if no letter or digit adjoins them. Shorter values are ordinary ones: they are kept.
    """

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        pairs = tuple(secrets)
        self.secrets = tuple((value, name) for value, name in pairs if any(_forms(value)))
        """Values that are searched for, each with the variable that replaces it."""
        self._pending, self._before = "", ""

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> SecretFilter:
        """The filter for a process of a trial, whose environment has the secrets."""
        return SecretFilter(json.loads(environment.get(SECRETS_VARIABLE) or "[]"))

    def to_environment(self) -> tuple[tuple[str, str], ...]:
        """The variable that :meth:`from_environment` reads, if there are secrets."""
        return ((SECRETS_VARIABLE, json.dumps(self.secrets)),) if self.secrets else ()

    def text(self, text: str) -> str:
        return self._in_texts.replace(text)[0]

    def document(self, value: Any) -> Any:
        """A JSON value without secrets in its texts."""
        if isinstance(value, dict):
            return {key: self.document(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.document(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def feed(self, data: bytes) -> bytes:
        """The part of a stream that cannot belong to a secret that is still incomplete."""
        text = self._pending + data.decode("latin-1")
        safe = self._in_bytes.safe_length(text)
        shown, self._pending = self._in_bytes.replace(text, safe, self._before)
        self._before = (self._before + text[: len(text) - len(self._pending)])[-1:]
        return shown.encode("latin-1")

    def end(self) -> bytes:
        """The rest of the stream."""
        text, self._pending = self._pending, ""
        return self._in_bytes.replace(text, before=self._before)[0].encode("latin-1")

    @cached_property
    def _in_texts(self) -> _Forms:
        return _Forms((form, name) for value, name in self.secrets for form in _forms(value))

    @cached_property
    def _in_bytes(self) -> _Forms:
        """Each byte as the character of the same number."""
        pairs = ((form, name) for value, name in self.secrets for form in _forms(value))
        return _Forms(
            (form.encode(errors="surrogatepass").decode("latin-1"), name) for form, name in pairs
        )


class _Form(NamedTuple):
    """A form in which a secret is printed; ``head`` begins each match of it."""

    text: str
    shown: str
    head: str
    is_alone: bool


class _Forms:
    def __init__(self, forms: Iterable[tuple[str, str]]) -> None:
        made: dict[str, _Form] = {}
        for text, name in forms:
            alone = not _is_distinct(text)
            head = text if alone else text[:_ANYWHERE]
            made.setdefault(text, _Form(text, f"${{{name}}}", head, alone))
        self._forms = tuple(sorted(made.values(), key=lambda form: -len(form.text)))
        heads = sorted({form.head for form in self._forms}, key=len, reverse=True)
        self._heads = re.compile("|".join(map(re.escape, heads)) or r"(?!)")

    def replace(self, text: str, end: int | None = None, before: str = "") -> tuple[str, str]:
        """The text with variables for secrets that begin before ``end``, and the rest.

        ``before``: the character that precedes the text.
        """
        pieces, start, look = [], 0, 0
        while (head := self._heads.search(text, look)) and (end is None or head.start() < end):
            shown, length = self._at(text, head.start(), end is None, before)
            if length:
                pieces += [text[start : head.start()], shown]
                start = look = head.start() + length
            else:
                look = head.start() + 1
        rest = len(text) if end is None else max(start, end)
        return "".join((*pieces, text[start:rest])), text[rest:]

    def safe_length(self, text: str) -> int:
        """Characters before the first possible start of an incomplete secret."""
        first = len(text)
        for form in self._forms:
            longest = len(form.text) - (not form.is_alone)
            start = text.find(form.text[0], max(0, len(text) - longest))
            while 0 <= start < first:
                if form.text.startswith(text[start:]):
                    first = start
                start = text.find(form.text[0], start + 1)
        return first

    def _at(self, text: str, start: int, is_all: bool, before: str) -> tuple[str, int]:
        """The replacement of a secret at this place, and its length; 0: there is none."""
        best = "", 0
        for form in self._forms:
            if not text.startswith(form.head, start):
                continue
            length = _common_length(form.text, text[start : start + len(form.text)])
            after = start + length
            if form.is_alone:
                around = (text[start - 1 : start] or before) + text[after : after + 1]
                counts = not re.search(r"\w", around, re.ASCII)
            else:
                is_cut = text.startswith(_CUT_HERE, after) or (is_all and after == len(text))
                counts = length == len(form.text) or is_cut
            if counts and length > best[1]:
                best = form.shown, length
        return best


def _common_length(text: str, other: str) -> int:
    pairs = enumerate(zip(text, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(text), len(other)))


def _forms(secret: str) -> Iterator[str]:
    """The value as Python, JSON, URLs and shells write it, and its lines; but none too short."""
    quoted = repr(secret)[1:-1], json.dumps(secret)[1:-1]
    encoded = secret.encode(errors="surrogatepass")
    in_urls = quote(encoded), quote(encoded, safe=""), quote_plus(encoded)
    forms = (
        *(secret, " ".join(secret.split()), *secret.splitlines(), *quoted),
        *(json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(quoted[0])[1:-1]),
        *(repr(quoted[1])[1:-1], repr(encoded)[2:-1], secret.replace("'", "'\"'\"'"), *in_urls),
        *(re.sub("%..", lambda found: found[0].lower(), form) for form in in_urls),
    )
    if _is_long(secret.strip()):
        yield from filter(_is_long, dict.fromkeys(forms))


def _is_long(text: str) -> bool:
    return len(text) >= (_ALONE if _MIXED.search(text) else _ANYWHERE)


def _is_distinct(text: str) -> bool:
    """True if a value is in no other text by chance."""
    is_plain = text.isdecimal() or (text.isalpha() and len(text) < 2 * _ANYWHERE)
    return len(text) >= _ANYWHERE and not is_plain


def plural(count: int, noun: str, several: str = "") -> str:
    """``1 step``, ``2 steps``; ``several`` if no *s* makes it."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def still_open(name: str, value: object) -> str:
    """A sentence on a list or "auto" that reaches a launch as it is."""
    return (
        f'{name} is {value!r}, but a launch needs one value; lists, "all" and "auto" are resolved '
        "by autoconf-launch, so start the script with it."
    )


class NothingFeasibleError(AutoconfError):
    """No configuration can be trained with: the baseline fails, nothing fits, or a later crash.

    Attributes:
        log_tail: the child's own last lines, if one ran.
    """

    def __init__(self, message: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log_tail = log_tail


class FailureKind(str, Enum):
    """Every way a trial can end without a measurement."""

    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    BAD_CONFIG = "bad_config"
    NOT_APPLIED = "not_applied"
    """Another strategy ran than was requested."""
    NO_STEPS = "no_steps"
    NAN = "nan"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure: its cause in one sentence, and the child's own last lines.

    What represents a byte that is not text (a lone surrogate) is escaped: no file takes it.
    ``ran_micro_batch`` is the largest that ran, if it was smaller than asked. ``lost_peer``: a
    rank only saw that another one had gone.
    """

    kind: FailureKind
    detail: str
    log_tail: tuple[str, ...] = ()
    ran_micro_batch: int | None = None
    lost_peer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _encodable(self.detail))
        object.__setattr__(self, "log_tail", tuple(map(_encodable, self.log_tail)))


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
