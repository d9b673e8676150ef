"""Units of parameters: how a value is read from a command line, and checked as a keyword."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, FrozenPart, nearest_known
from autoconf_launch.tuning_spaces import hint

MOST = 1 << 31
"""The largest size of a model that is believed."""
MOST_DEGREE = 1 << 20
_FEWEST_TOKENS, _MOST_TOKENS = 10**5, 10**18
_PLAIN = {"": 1}
_DECIMAL = {letter: 1000**power for power, letter in enumerate(("", "k", "m", "b", "t"))}
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20}
_BYTES = {
    f"{letter}{binary}{byte}": base**power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for binary, base in (("", 1000), ("i", 1024))[: 1 + bool(power)]
    for byte in ("", "b")
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST_SHOWN = 1 << 24


def accept(value: Any) -> None:
    """Refuse nothing."""


def refuse_other_than_text(value: Any) -> str | None:
    """Refuse values that are not text."""
    return None if isinstance(value, str) else "it must be text"


def refuse_other_than_texts(value: Any) -> str | None:
    """Refuse values that are neither text nor several texts."""
    texts = value if isinstance(value, (list, tuple)) else (value,)
    return None if all(isinstance(one, str) for one in texts) else "it must be text"


def refuse_other_than_path(value: Any) -> str | None:
    """Refuse values that are neither text nor a path."""
    return None if isinstance(value, (str, Path)) else "it must be a path"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueUnit:
    """Spelling and check of a parameter's values.

    Attributes:
        metavar: placeholder of the value in the help.
        read: a word of the command line as a value.
        refuse: the end of a sentence on a keyword's wrong value; None for a right one.
        action: argparse's action for the flag.
        const: value of the flag without a word.
        known: words that a shell completes; without a placeholder the help has them, too.
        write: a value as a word of the command line.
        place: how many words without a flag it is: 1, ?, + or ``*``; empty: it has a flag.
        numbers: the range of a number as JSON Schema writes it.
        reads_whole: a whole number as a keyword means what it means as a word.
    """

    metavar: str = ""
    read: Callable[[str], Any] = str
    refuse: Callable[[Any], str | None] = refuse_other_than_text
    action: str = "store"
    const: Any = None
    known: tuple[str, ...] = ()
    write: Callable[[Any], str] = str
    place: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    reads_whole: bool = False

    @property
    def takes_word(self) -> bool:
        return self.action in ("store", "append")

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"action": self.action}
        if self.const is not None:
            found["const"] = self.const
        if not self.takes_word:
            return found
        shown = {"metavar": self.metavar} if self.metavar else {"choices": self.known}
        count = "?" if self.const is not None else self.place.strip("1")
        return {**found, "type": self.read, **shown, **({"nargs": count} if count else {})}


def whole(least: int, most: int, metavar: str = "N") -> ValueUnit:
    """Whole numbers in a range."""
    must = f"must be a whole number from {least} to {most}"

    def refuse(value: Any) -> str | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return None if is_whole and least <= value <= most else f"it {must}"

    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,18}", text) or refuse(int(text)):
            raise argparse.ArgumentTypeError(f"{text!r} {must}")
        return int(text)

    numbers = {"minimum": least, "maximum": most}
    return ValueUnit(metavar=metavar, read=read, refuse=refuse, numbers=numbers)


def decimal(least: float, most: float, metavar: str) -> ValueUnit:
    """Numbers in a range."""
    must = f"must be a number from {least:g} to {most:g}"

    def refuse(value: Any) -> str | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if is_number and least <= value <= most else f"it {must}"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if refuse(value):
            raise argparse.ArgumentTypeError(f"{text!r} {must}")
        return value

    numbers = {"minimum": least, "maximum": most}
    return ValueUnit(metavar=metavar, read=read, refuse=refuse, numbers=numbers)


def quantity(
    metavar: str,
    must: str,
    scales: Mapping[str, float],
    plain: ValueUnit,
    kind: type[float] = float,
) -> ValueUnit:
    """Amounts such as ``1.5T``, exact in decimals, in the range of their plain numbers."""

    def read(text: str) -> float:
        lower = text.strip().lower().replace("_", "").removeprefix("$" * (metavar == "USD"))
        found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-z%]*)", lower)
        scale = scales.get(found[2]) if found else None
        value = kind(Decimal(found[1]) * Decimal(str(scale))) if found and scale else None
        if value is None or plain.refuse(value):
            raise argparse.ArgumentTypeError(f"{text!r} {must}")
        return value

    return replace(plain, metavar=metavar, read=read)


def _a(what: str) -> str:
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def choice(what: str, known: Iterable[str], metavar: str = "NAME") -> ValueUnit:
    """A choice between names, or between an enumeration's values or members."""
    names = tuple(one.value if isinstance(one, Enum) else one for one in known)
    spelled = {one.lower(): one for one in names}

    def refuse(value: Any) -> str | None:
        return None if value in names else hint(str(value), names)

    def read(text: str) -> str:
        name = spelled.get(text.strip().lower(), text)
        if why := refuse(name):
            raise argparse.ArgumentTypeError(f"{text!r} is not {_a(what)}; {why}")
        return name

    return ValueUnit(metavar=metavar, read=read, refuse=refuse, known=names)


def open_name(what: str, *names: str, more: Callable[[], Iterable[str]]) -> ValueUnit:
    """A name that the help lists, or a name in ``more``, which installed packages provide."""

    def refuse(value: Any) -> str | None:
        is_known = value in names or value in (others := tuple(more()))
        return None if is_known else hint(str(value), tuple(dict.fromkeys((*names, *others))))

    def read(text: str) -> str:
        if why := refuse(text.lower()):
            raise argparse.ArgumentTypeError(f"{text!r} is not {_a(what)}; {why}")
        return text.lower()

    return ValueUnit(metavar=f"{{{','.join(names)}}}", read=read, refuse=refuse, known=names)


def _read_file(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is not a file; give a name, or /dev/stdout")
    return Path(text)


def _read_percent(text: str) -> Any:
    share = _ANY_PERCENT.read(text)
    if 0.0 < share < 0.01 and not text.strip().endswith("%"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is below 1 %; write {100 * share:g}% for it, or {10_000 * share:g}% if a "
            "share is meant"
        )
    return share


def at_least(least: int, metavar: str = "N", *, unset: str = "") -> ValueUnit:
    """Whole numbers from one up; ``unset``: a word that leaves the number open."""

    def read(text: str) -> int | None:
        return None if unset and text == unset else _whole(text, least=least)

    return ValueUnit(
        metavar=metavar,
        read=read,
        refuse=refuse_as(read),
        numbers={"minimum": least},
        reads_whole=True,
    )


def mapping_of(keys: Iterable[str], others: Mapping[str, type]) -> ValueUnit:
    """Mappings of known keys; ``others`` have no flag, and values of a type."""
    known = (*keys, *others)

    def refuse(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "it must be a mapping of names to values"
        for key, one in value.items():
            if key not in known:
                return f"{key!r} is not a key of it; {hint(str(key), known)}"
            if key in others and one is not None and not isinstance(one, others[key]):
                return f"{key!r} must be {_a(others[key].__name__)}"
        return None

    return ValueUnit(metavar="NAME", refuse=refuse)


def refuse_other_than_pairs(value: Any) -> str | None:
    """Refuse what is not several pairs of a name and something."""
    is_listed = isinstance(value, (tuple, list)) and all(
        isinstance(one, (tuple, list)) and len(one) == 2 and isinstance(one[0], str)
        for one in value
    )
    return None if is_listed else "it must be pairs of a name and a value"


def _whole(text: str, *, least: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least {least}")
    return int(text)


def refuse_as(read: Callable[[str], Any]) -> Callable[[Any], str | None]:
    """Refuse keywords that would be refused as words."""

    def refuse(value: Any) -> str | None:
        try:
            read(str(value))
        except argparse.ArgumentTypeError as error:
            return f"it {str(error).removeprefix(repr(str(value))).strip()}"
        return None

    return refuse


def frameworks(known: Iterable[str]) -> ValueUnit:
    """Names of frameworks with commas between them, each once."""
    names = tuple(known)

    def read(text: str) -> tuple[str, ...]:
        given = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
        for name in given:
            if name not in names:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is not a framework; {nearest_known(name, names)}"
                )
        return given

    return ValueUnit(metavar="|".join(names), read=read, known=names)


def _refuse_amount(value: Any) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number and 0.0 < value < math.inf else "it must be a number above 0"


def _refuse_share(value: Any) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number and 0.0 <= value < 1.0 else "it must be a share from 0 to below 1"


def _refuse_switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "it must be True or False"


def tokens_text(tokens_b: float) -> str:
    """``2 T tokens``, ``300 B tokens``, ``0.3 M tokens``."""
    scales = ((1e3, "T"), (1.0, "B"))
    scale, letter = next((one for one in scales if tokens_b >= one[0]), (1e-3, "M"))
    return f"{tokens_b / scale:g} {letter} tokens"


def _read_tokens(text: str) -> int:
    """Tokens of ``300B``, ``1.8T``, ``5000000000``; exact in decimals."""
    count: int = _COUNT.read(text)
    if count < _FEWEST_TOKENS:  # nobody trains on 300: 300 billion are meant
        raise argparse.ArgumentTypeError(
            f"{text!r} is {count:,} tokens; did you mean {text.strip()}B?"
        )
    return count


def _read_bytes(text: str) -> int:
    """Bytes of ``2GB``, ``512MiB``, ``1.5g``; decimal unless written with an i."""
    if re.fullmatch(r"[0-9.]+", text.strip()):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no unit; write for example {text.strip()}GB"
        )
    size: int = _SIZE_IN_BYTES.read(text)
    return size


def _read_named_price(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not (name.strip() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} must be a GPU and its price, as A10G=0.9")
    return name.strip(), PRICE.read(amount)


def _read_whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between them; ``4-7`` is 4,5,6,7."""
    parts = [re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part.strip()) for part in text.split(",")]
    runs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if not all(parts) or any(first > last for first, last in runs):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be whole numbers, such as 14,5,5 or 4-7,0-3"
        )
    if sum(last - first + 1 for first, last in runs) > MOST_DEGREE:
        raise argparse.ArgumentTypeError(f"{text!r} has more than {MOST_DEGREE} numbers")
    return tuple(number for first, last in runs for number in range(first, last + 1))


def _refuse_whole_numbers(value: Any) -> str | None:
    listed = value if isinstance(value, (tuple, list)) else (value,)
    is_whole = not any(map(_DIGIT.refuse, listed))
    return None if is_whole else "it must be whole numbers, such as (14, 5, 5)"


def _read_parts(text: str) -> frozenset[FrozenPart]:
    known = {part.value: part for part in FrozenPart}
    for name in text.lower().split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not a part; {hint(name, known)}")
    return frozenset(known[name] for name in text.lower().split(","))


def _refuse_parts(value: Any) -> str | None:
    known = [part.value for part in FrozenPart]
    names = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
    return next((hint(str(name), known) for name in names if name not in known), None)


def _refuse_sizes(value: Any) -> str | None:
    listed = value if isinstance(value, (tuple, list)) else (value,)
    is_whole = not any(map(DEGREE.refuse, listed))
    return None if is_whole else "it must be whole numbers above 0, such as [1, 2, 4]"


def _read_billions(text: str) -> float:
    """Exact in decimals, as the formula rounds."""
    return float(Decimal(_read_tokens(text)).scaleb(-9))


def _refuse_assumptions(value: Any) -> str | None:
    from autoconf_launch.autotuner.sizing import Goodput  # with numpy, unlike --help

    if isinstance(value, Goodput):
        return None
    is_pairs = not refuse_other_than_pairs(value)
    return (
        None
        if is_pairs and not any(_refuse_number(one) for _, one in value)
        else (
            "it must be a Goodput, or pairs of a name and a number, such as [('restart_s', 600)]"
        )
    )


def _refuse_number(value: Any) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number else "it must be a number"


def _read_family(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a family")
    from autoconf_launch.autotuner.sizing import family_named  # with numpy, unlike --help

    try:
        return family_named(text).name
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read_assumption(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be NAME=VALUE, such as restart_s=600"
        ) from None


_DIGIT = whole(0, 9_999_999)
NAME = ValueUnit(metavar="NAME")
FILE = ValueUnit(metavar="FILE", read=_read_file, refuse=refuse_other_than_path)
FOLDER = ValueUnit(metavar="DIR", read=Path, refuse=refuse_other_than_path)
_AMOUNT = ValueUnit(refuse=_refuse_amount, numbers={"exclusiveMinimum": 0})
SHARE = ValueUnit(refuse=_refuse_share, numbers={"minimum": 0, "exclusiveMaximum": 1})
ON = ValueUnit(action="store_true", refuse=_refuse_switch)
OFF = ValueUnit(action="store_false", refuse=_refuse_switch)
SWITCH = ValueUnit(action="switch", refuse=_refuse_switch)
DEGREE = whole(1, MOST_DEGREE)
SIZE = whole(1, MOST)
_ROWS = whole(0, _MOST_SHOWN)
SHOWN = replace(_ROWS, read=lambda text: _ROWS.read(text) or None, reads_whole=True)
"""Rows to show; 0 is read as None: all."""
SEQUENCE = quantity("S", "must be a number of tokens, such as 8192 or 8k", _BINARY, SIZE, int)
"""Contexts go by powers of two, so a k is 1024."""
_COUNT = quantity(
    "T", "must be tokens, such as 300B or 15T", _DECIMAL, whole(1, _MOST_TOKENS), int
)
TOKENS = replace(_COUNT, read=_read_tokens)
BILLIONS = replace(_AMOUNT, metavar="N", read=_read_billions)
_SIZE_IN_BYTES = quantity(
    "SIZE",
    "is not a size; write for example 2GB or 512MiB",
    _BYTES,
    whole(1, _MOST_TOKENS),
    int,
)
BYTES = replace(_SIZE_IN_BYTES, read=_read_bytes)
USD = quantity("USD", "must be an amount in USD, such as 250000 or 5M", _DECIMAL, _AMOUNT)
PRICE = quantity("USD", "must be a number above 0 (price in USD)", _PLAIN, _AMOUNT)
NAMED_PRICE = ValueUnit(metavar="GPU=USD", read=_read_named_price, action="append")
_ANY_PERCENT = quantity(
    "PERCENT", "must be a percentage from 0 to below 100", {"": 0.01, "%": 0.01}, SHARE
)
PERCENT = replace(_ANY_PERCENT, read=_read_percent)
SECONDS = quantity(
    "S",
    "is not a time; write for example 90, 90s or 10m",
    {"": 1, "s": 1, "m": 60, "h": 3600},
    _AMOUNT,
)
DURATION = quantity("TIME", "must be a time with its unit, such as 5d or 12h", _SECONDS, _AMOUNT)
MILLISECONDS = quantity("MS", "must be milliseconds above 0, such as 2000", _PLAIN, _AMOUNT)
WHOLE_NUMBERS = ValueUnit(
    metavar="N,N", read=_read_whole_numbers, refuse=_refuse_whole_numbers, reads_whole=True
)
FROZEN_PARTS = ValueUnit(metavar="PARTS", read=_read_parts, refuse=_refuse_parts)
SIZES = ValueUnit(
    metavar="N,N",
    read=lambda text: tuple(sorted({DEGREE.read(part.strip()) for part in text.split(",")})),
    refuse=_refuse_sizes,
    reads_whole=True,
)
FAMILY = ValueUnit(metavar="F", read=_read_family)
ASSUMPTION = ValueUnit(
    metavar="NAME=VALUE", read=_read_assumption, refuse=_refuse_assumptions, action="append"
)
