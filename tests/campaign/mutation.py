"""Seeded damage to documents and texts: values nobody expects, and bytes that do not belong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Path_ = tuple[Any, ...]


def _nest(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


HOSTILE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 0.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63,
    10**30, 10**400, "", "auto", "\x1b[31mred\x1b[0m", "\x9b2J", "a\0b", "\udc80", "\u202etxt",
    "=1+1", "@SUM(1)", "../../x", "/etc/passwd", "$(touch x)", "`id`", "${oc.env:HOME}", "{{x}}",
    "line\nline", "\r\n", "x" * 5000, "1:30", "1e5", "0x10", "010", "NaN", "null", "yes", "-",
    "--flag", "\u0660", "\U0001f680", [], [None], [[]], [1, [2, [3]]], {}, {"": 1},
    {"a": {"b": 1}},
    {"\x1b]0;t\x07": 1}, {"type": "AdamW"}, list(range(300)), _nest(300), [1, 1], ["a", 1],
)  # fmt: skip
WORDS = ("\0", "\x1b[2J", "\x9b", "\ufeff", "\r", "\u2028", "\\", '"', "'", "{", "}", "[", "]",
    ",", ":", "#", "&a", "*a", "!!python/object/apply:os.system ['id']", "<<: *a", "- ", "\t", "%",
    "NaN", "-1", "9" * 5000, "1e999", "slots=0", "=", "==", "$", "`", "\U0001f680", "\udcff", " ",
    "\n\n", "---\n", "|", ">", "? ", "~")  # fmt: skip


def places(document: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Paths of all values below the top."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        yield (*at, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*at, key))


def mutate(document: Any, random: Random) -> tuple[Any, tuple[str, ...]]:
    """A copy with one to three changes, and the names of what was touched."""
    changed, touched = copy.deepcopy(document), []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        paths = list(places(changed))
        if not paths:
            break
        path = random.choice(paths)
        _damage(changed, path, random)
        touched += [str(part) for part in path if isinstance(part, str)]
    return changed, tuple(touched)


def hostile(random: Random) -> Any:
    return copy.deepcopy(random.choice(HOSTILE))


def _damage(document: Any, path: Path_, random: Random) -> None:
    holder = document
    for part in path[:-1]:
        holder = holder[part]
    key = path[-1]
    ways: tuple[Callable[[], None], ...] = (
        lambda: holder.__setitem__(key, hostile(random)),
        lambda: holder.__setitem__(key, hostile(random)),
        lambda: holder.__setitem__(key, _near(holder[key], random)),
        lambda: holder.__setitem__(key, [holder[key], hostile(random)]),
        lambda: holder.__setitem__(key, {str(key): holder[key]}),
        lambda: holder.__delitem__(key),
        lambda: _rename(holder, key, random),
    )
    random.choice(ways)()


def _near(value: Any, random: Random) -> Any:
    """A value of the same type, far from this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((-value, value * 10**6, value + 1, 3, 2**31 - 1, f"{value}.0"))
    if isinstance(value, float):
        return random.choice((-value, value * 1e30, f"{value:.0f}", str(value)))
    if isinstance(value, str):
        return random.choice((value[:-1], value.upper(), value + "x", value * 200, [value]))
    return hostile(random)


def _rename(holder: Any, key: Any, random: Random) -> None:
    if not isinstance(holder, dict):
        holder.insert(0, hostile(random))
        return
    at = random.randrange(len(key) + 1)
    name = random.choice((key[:at] + key[at + 1 :], key[:at] + random.choice(WORDS) + key[at:]))
    holder[name] = holder.pop(key)


def damage_text(text: str, random: Random) -> bytes:
    """A text's bytes with one to four cuts, repeats, foreign words and flipped bytes."""
    for _ in range(random.choice((1, 1, 2, 4))):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((0, 1, 1, 3, 20, 400)))
        between = random.choice(
            ("", text[start:end] * 2, random.choice(WORDS), text[::-1][start:end])
        )
        text = text[:start] + between + text[end:]
    data = bytearray(text.encode("utf-8", "surrogateescape"))
    if data and random.random() < 0.15:
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)
