"""Values in a script's own arguments: read, and replaced in the form that they were given in."""

from __future__ import annotations


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
