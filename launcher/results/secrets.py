"""Secrets in words of a command and in documents: found, removed, hashed, read by a shell.

A value is a secret by whole words of its name, or by its own form.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from autoconf_launch.core import RawConfig, SecretFilter, dotted_name, visible

from ..input_file import input_text, is_there
from .own_files import open_file, open_private

_WORDS = {
    kind: frozenset(words.split())
    for kind, words in json.loads(
        files(__package__).joinpath("secret_words.json").read_text("utf-8")
    ).items()
}
"""Last words of names whose values are secrets; words before ``key`` that make it one
(``api_key``, not ``text_key``), and before ``token`` that do not (``pad_token``); words, and
ends of words, that make a variable of the environment one, and last words that do not;
values that never are; patterns of values that are secrets under any name."""
_ENDS = tuple(_WORDS["ends in variables"])
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_READ_ELSEWHERE = re.compile(r"\$\{.*\}")
_IN_TEXTS = re.compile(r"<.*>|\[.*\]")
_NAMED = re.compile(r"[-+~]*([A-Za-z_][\w.\-]*)=(.+)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.\-]*")
_ASSIGNED = re.compile(
    r"(?<![\w.\-])(?=([A-Za-z_][\w.\-]*)[\"']?\s*[:=]\s*"
    r"(?:\"([^\"]+)\"|'([^']+)'|([^\"',;&#}\s]+)))"
)
"""Assignments in lists, in queries, in JSON, in YAML."""
_USER_IN_URL = re.compile(r"([a-z][a-z0-9+.\-]*)://([^/\s?#:@]*)(?::([^/\s?#]*))?@")
_WEB = ("http", "https")
"""Schemes in which a user without a password is a token; in others it is a name."""
_KNOWN_FORMS = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(_WORDS['forms']))})")
_QUOTES = "\"'"
_UNSET = "is not set; export it with the secret that this command needs"
_ROUNDS = 100_000
"""Makes guessing a short secret from its digest slow."""


class _Hidden(NamedTuple):
    """The secret at ``word[start:end]``."""

    start: int
    end: int
    variable: str


class _Piece(NamedTuple):
    """Plain text of a word, and the secret after it with the variable that replaces it."""

    plain: str
    secret: str = ""
    variable: str = ""


def is_secret(name: str, value: str) -> bool:
    """True if a value of that name is a secret: ``hf_token`` is, ``max_tokens`` is not."""
    words = [part.lower() for part in _PART.findall(name)]
    last, before = next(reversed(words), ""), next(reversed(words[:-1]), "")
    if _is_ordinary(value):
        return False
    if last in _WORDS["always"]:
        return True
    if _NUMBER.fullmatch(value) or _IN_TEXTS.fullmatch(value):
        return False
    if last == "token":
        return before not in _WORDS["tokens of texts"]
    return last == "auth" or (last == "key" and before in _WORDS["keys of"])


def _is_ordinary(value: str) -> bool:
    """True if a value is never a secret: a switch, a path, a reference."""
    return (
        not value
        or value.lower() in _WORDS["switches"]
        or is_there(value)
        or _READ_ELSEWHERE.fullmatch(value) is not None
    )


def is_secret_variable(name: str, value: str) -> bool:
    """True if a variable of the environment is a secret: any word of its name may say so."""
    words = [part.lower() for part in _PART.findall(name)]
    last, before = next(reversed(words), ""), next(reversed(words[:-1]), "")
    if (
        last in _WORDS["places"]
        or (last == "token" and before in _WORDS["tokens of texts"])
        or _is_ordinary(value)
        or _NUMBER.fullmatch(value)
        or _IN_TEXTS.fullmatch(value)
        or value.startswith("/")
    ):
        return is_secret(name, value)
    return any(
        word in _WORDS["in variables"] or word.removesuffix("s").endswith(_ENDS) for word in words
    )


def without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command with ``${HF_TOKEN}`` in place of a secret."""
    return tuple(
        "".join(
            f"{piece.plain}${{{piece.variable}}}" if piece.variable else piece.plain
            for piece in pieces
        )
        for pieces in _split(words)
    )


def with_digests(words: Iterable[str]) -> tuple[str, ...]:
    """The words with a digest in place of a secret, to detect a change."""
    return tuple(
        "".join(piece.plain + _digest(piece) for piece in pieces) for pieces in _split(words)
    )


def shell_command(words: Iterable[str]) -> str:
    """The command quoted for a shell, which reads secrets from variables and ends without them."""
    return " ".join("".join(map(_quote, pieces)) or "''" for pieces in _split(words))


def document_without_secrets(document: Any, name: str = "") -> Any:
    """A document with ``${API_KEY}`` in place of a secret."""
    if isinstance(document, dict):
        return {
            key: document_without_secrets(value, f"{name}.{key}" if name else str(key))
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [document_without_secrets(value, name) for value in document]
    if not isinstance(document, str):
        return document
    if is_secret(name, document):
        return f"${{{_variable(name)}}}"
    return without_secrets((document,))[0]


def named_values(document: RawConfig) -> tuple[str, ...]:
    """Texts of a document as words like ``hub.api_key=VALUE``."""
    return tuple(
        f"{dotted_name(path)}={value}" for path, value in document.leaves() if type(value) is str
    )


def known_secrets(words: Iterable[str], variables: Mapping[str, str]) -> SecretFilter:
    """The filter for secrets among the words of a command and the variables of a process."""
    assigned = (f"{name}={text}" for name, text in variables.items())
    pieces = (piece for pieces in _split((*words, *assigned)) for piece in pieces)
    return SecretFilter({piece.secret: piece.variable for piece in pieces if piece.secret}.items())


def text_without_secrets(text: str) -> str:
    """The text of a file with ``${API_KEY}`` in place of secrets that it names."""
    return without_secrets((f"\n{text}",))[0][1:]


def dotenv_words() -> tuple[str, ...]:
    """Variables of the ``.env`` file here, which scripts read by themselves, as ``NAME=VALUE``."""
    try:
        lines = input_text(Path(".env")).splitlines()
    except (OSError, ValueError):
        return ()
    parts = (line.removeprefix("export ").partition("=") for line in lines)
    return tuple(f"{name.strip()}={value.strip().strip(_QUOTES)}" for name, _, value in parts)


def terminal_text(text: str) -> str:
    """A text for the terminal: control characters escaped, secrets of this command omitted."""
    return visible(own_secrets().text(text))


def own_secrets() -> SecretFilter:
    """The filter for the secrets of this command."""
    return _of_this_command(tuple(sys.argv), tuple(os.environ.items()))


@lru_cache(maxsize=1)
def _of_this_command(
    words: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> SecretFilter:
    return known_secrets((*words, *dotenv_words()), dict(variables))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with open(path, "w", encoding="utf-8", opener=open_private) as file:
        file.write(text)


def write_guarded(path: Path, text: str) -> None:
    """Write a file, readable only by its owner if it contains a secret."""
    if any((*_by_name(text), *_in_url(text, ""), *_by_form(text, ""))):
        write_private(path, text)
    else:
        write_plain(path, text)


def write_plain(path: Path, text: str) -> None:
    """Write a file of a results folder, through no link."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape", opener=open_file) as file:
        file.write(text)


def _split(words: Iterable[str]) -> Iterator[tuple[_Piece, ...]]:
    """Each word in pieces; different secrets get different variables."""
    values: dict[str, str] = {}
    before = ""
    for word in words:
        pieces, start = [], 0
        for hidden in _in_word(word, before):
            secret, variable, number = word[hidden.start : hidden.end], hidden.variable, 1
            while values.setdefault(variable, secret) != secret:
                number += 1
                variable = f"{hidden.variable}_{number}"
            pieces.append(_Piece(word[start : hidden.start], secret, variable))
            start = hidden.end
        yield (*pieces, _Piece(word[start:]))
        before = word


def _digest(piece: _Piece) -> str:
    if not piece.variable:
        return ""
    secret, salt = piece.secret.encode(), piece.variable.encode()
    return f"pbkdf2:{hashlib.pbkdf2_hmac('sha256', secret, salt, _ROUNDS).hex()}"


def _quote(piece: _Piece) -> str:
    plain = shlex.quote(piece.plain) if piece.plain else ""
    return f'{plain}"${{{piece.variable}:?{_UNSET}}}"' if piece.variable else plain


def _in_word(word: str, before: str) -> tuple[_Hidden, ...]:
    flag = before if _FLAG.fullmatch(before) else ""
    if not word.startswith("-") and is_secret(flag, word):
        return (_Hidden(0, len(word), _variable(flag)),)
    named = _NAMED.fullmatch(word)
    check = is_secret_variable if named and named[1].isupper() else is_secret
    if named and check(named[1], named[2]):
        return (_Hidden(named.start(2), len(word), _variable(named[1])),)
    name = named[1] if named else flag
    return _apart((*_in_url(word, name), *_by_name(word), *_by_form(word, name)))


def _in_url(word: str, name: str) -> Iterator[_Hidden]:
    for match in _USER_IN_URL.finditer(word):
        group = 3 if match[3] else 2
        if match[group] and (group == 3 or match[1] in _WEB):
            yield _Hidden(*match.span(group), _variable(f"{name or 'url'}_password"))


def _by_name(text: str) -> Iterator[_Hidden]:
    for match in _ASSIGNED.finditer(text):
        group = match.lastindex or 0
        if is_secret(match[1], match[group]):
            yield _Hidden(*match.span(group), _variable(match[1]))


def _by_form(word: str, name: str) -> Iterator[_Hidden]:
    for match in _KNOWN_FORMS.finditer(word):
        yield _Hidden(*match.span(), _variable(name or "token"))


def _apart(found: Iterable[_Hidden]) -> tuple[_Hidden, ...]:
    kept: list[_Hidden] = []
    for hidden in sorted(found, key=lambda one: (one.start, -one.end)):
        if not kept or hidden.start >= kept[-1].end:
            kept.append(hidden)
    return tuple(kept)


def _variable(name: str) -> str:
    """``--hf-token`` is read from HF_TOKEN, ``hub.apiKey`` from HUB_API_KEY."""
    made = "_".join(re.findall(r"[A-Z0-9]+(?![a-z])|[A-Z]?[a-z0-9]+", name)).upper()
    return f"_{made}" if made[:1].isdigit() else made
