"""Values in a script's own arguments: read, and replaced in the form that they were given in.

Forms are ``--x 1``, ``--x=1``, ``x=1``, ``-x1`` for a number, and a bare ``--x``; ``-`` and ``_``
are equal in names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

TRUE_WORDS = ("true", "yes", "y", "t", "1", "on")
FALSE_WORDS = ("false", "no", "n", "f", "0", "off", "none")


class ArgumentForm(Enum):
    """How an argument is written."""

    SPACED = "--x 1"
    JOINED = "--x=1"
    WORD = "x=1"
    STUCK = "-x1"
    BARE = "--x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One argument as it stands; ``value`` is empty for a bare one."""

    index: int
    form: ArgumentForm
    value: str


def find_argument(
    arguments: tuple[str, ...], names: tuple[str, ...], *, switch: bool = False
) -> Given | None:
    """The last of these arguments; None where none is given.

    Args:
        arguments: of the script.
        names: ``--long``, ``-s``, or ``key`` without dashes for ``key=1`` alone.
        switch: it needs no value; only a truth value after it is taken for one.
    """
    wanted = {_plain(name) for name in names}
    found = None
    for index, argument in enumerate(arguments):
        written, equals, value = argument.partition("=")
        if _is_stuck(argument, wanted):
            found = Given(index=index, form=ArgumentForm.STUCK, value=argument[2:])
            continue
        if _plain(written) not in wanted or (not equals and not written.startswith("-")):
            continue
        if equals:
            form = ArgumentForm.JOINED if written.startswith("-") else ArgumentForm.WORD
            found = Given(index=index, form=form, value=value)
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        spaced = _is_value(following, switch)
        found = Given(
            index=index,
            form=ArgumentForm.SPACED if spaced else ArgumentForm.BARE,
            value=str(following) if spaced else "",
        )
    return found


def put_argument(
    arguments: tuple[str, ...],
    given: Given | None,
    name: str,
    value: str | None,
    *,
    joined: bool = False,
) -> tuple[str, ...]:
    """Set a value in the form it was given in, or append it; None: bare.

    What is appended has an equals sign where it must (``joined``), or all others have one.
    """
    if given is None:
        return (*arguments, *_written(name, value, joined=joined or _are_joined(arguments)))
    before, after = arguments[: given.index], arguments[given.index + 1 :]
    written = arguments[given.index].partition("=")[0]
    if given.form is ArgumentForm.SPACED:
        rest = after[1:]
        return (*before, written, *(() if value is None else (value,)), *rest)
    if given.form is ArgumentForm.STUCK:
        return (*before, f"{written[:2]}{value or ''}", *after)
    if given.form is ArgumentForm.BARE:
        return (*before, written, *(() if value is None else (value,)), *after)
    return (*before, written if value is None else f"{written}={value}", *after)


def drop_argument(arguments: tuple[str, ...], given: Given | None) -> tuple[str, ...]:
    """The same without one argument and its value."""
    if given is None:
        return arguments
    end = given.index + (2 if given.form is ArgumentForm.SPACED else 1)
    return (*arguments[: given.index], *arguments[end:])


def without_arguments(arguments: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The same without any of these, however often they are given."""
    while (given := find_argument(arguments, names)) is not None:
        arguments = drop_argument(arguments, given)
    return arguments


def _plain(name: str) -> str:
    """A long name without its dashes; ``-b`` stays, as ``b`` is another thing."""
    bare = name.lstrip("-+")
    return name if name.startswith("-") and len(bare) == 1 else bare.replace("-", "_")


def _is_stuck(argument: str, wanted: set[str]) -> bool:
    return argument[:2] in wanted and argument[1:2].isalpha() and argument[2:].isdecimal()


def _is_value(following: str | None, switch: bool) -> bool:
    if following is None:
        return False
    if switch:
        return following.lower() in (*TRUE_WORDS, *FALSE_WORDS)
    negative = following[1:].replace(".", "", 1).isdigit()
    return not following.startswith("-") or negative


def _written(name: str, value: str | None, *, joined: bool) -> tuple[str, ...]:
    if value is None:
        return (name,)
    return (f"{name}={value}",) if joined or not name.startswith("-") else (name, value)


def _are_joined(arguments: tuple[str, ...]) -> bool:
    """Whether the script's arguments with values all have an equals sign: some accept no other."""
    flags = [argument for argument in arguments if argument.startswith("--")]
    return bool(flags) and all("=" in flag for flag in flags)


def argument_value(arguments: tuple[str, ...], flag: str) -> str | None:
    """The last value of ``--flag VALUE`` or ``--flag=VALUE``; None where it is not given."""
    found = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


def with_argument(arguments: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """Replace a flag's value in the form it was given in; add it where it is missing."""
    replaced = list(arguments)
    for index in range(len(replaced) - 1, -1, -1):
        if replaced[index] == flag and index + 1 < len(replaced):
            replaced[index + 1] = value
            return tuple(replaced)
        if replaced[index].startswith(f"{flag}="):
            replaced[index] = f"{flag}={value}"
            return tuple(replaced)
    return (*arguments, flag, value)


def path_argument(arguments: tuple[str, ...], position: int) -> str:
    """The path in an argument that is ``PATH`` or ``--flag=PATH``."""
    flag, equals, value = arguments[position].partition("=")
    return value if equals and flag.startswith("-") else arguments[position]


def with_path_argument(
    arguments: tuple[str, ...], position: int | None, path: str
) -> tuple[str, ...]:
    """Put another path there; the same arguments where there is none."""
    if position is None:
        return arguments
    flag, equals, _ = arguments[position].partition("=")
    joined = equals and flag.startswith("-")
    changed = f"{flag}={path}" if joined else path
    return (*arguments[:position], changed, *arguments[position + 1 :])
