"""An argparse parser whose help has examples and whose errors are values of ours."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from autoconf_launch.core import ConfigError

_NEAR = 0.8
"""Least similarity of names of which one may be a slip for the other, if neither begins so."""


class _Once(argparse.Action):
    """Stores a value; given twice with different ones, a flag is an error: neither is dropped."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store it."""
        _require_one_value(self, parser, namespace, values, option_string)
        setattr(namespace, self.dest, values)


class _Switch(argparse.BooleanOptionalAction):
    """``action="switch"``: ``--flag`` or ``--no-flag``, but not both."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store it."""
        _require_one_value(self, parser, namespace, option_string, option_string)
        super().__call__(parser, namespace, values, option_string)


def _require_one_value(
    action: argparse.Action,
    parser: argparse.ArgumentParser,
    namespace: argparse.Namespace,
    value: Any,
    flag: str | None,
) -> None:
    seen: dict[str, Any] = namespace.__dict__.setdefault("_given", {})
    if flag is not None and seen.setdefault(action.dest, value) != value:
        parser.error(f"{'/'.join(action.option_strings)} is given twice; give it once")


class VerbParser(argparse.ArgumentParser):
    """A parser that raises ConfigError instead of printing and leaving.

    Args:
        examples: command lines that end the help.
        options: of argparse.
    """

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.examples = tuple(examples)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.register("action", "switch", _Switch)

    def format_help(self) -> str:
        """The flags in their groups, and examples."""
        lines = "".join(f"  {line}\n" for line in self.examples)
        return f"{super().format_help()}\nexamples:\n{lines}" if lines else super().format_help()

    def error(self, message: str) -> NoReturn:
        where = "" if message.endswith("?") else f"; see {self.prog} --help."
        raise ConfigError(f"{_plain_error(message)}{where}")


def _plain_error(message: str) -> str:
    found = re.fullmatch(r"argument (\S+): (.*)", message, flags=re.DOTALL)
    if not found:
        return f"{message[0].upper()}{message[1:]}"
    flag, what = found.groups()
    if other := re.fullmatch(r"not allowed with argument (\S+)", what):
        return f"{flag} and {other[1]} cannot be given together; give one of them"
    if what.startswith("--"):
        return what
    return f"{flag} {what}" if what.startswith(("'", '"')) else f"{flag}: {what}"


def unknown_flag(name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for an unknown flag, with the nearest known flag or a place to look."""
    dashed = {flag.replace("_", "-"): flag for flag in known if flag.startswith("--")}
    wanted = name.replace("_", "-")
    close = difflib.get_close_matches(wanted, dashed, n=1, cutoff=_NEAR)
    begins = [flag for flag in dashed if flag.startswith(wanted) or wanted.startswith(flag)]
    near = next(iter(close or sorted(begins, key=len)), None)
    hint = f"did you mean '{dashed[near]}'?" if near else f"see {where}."
    return ConfigError(f"Unknown flag {name}; {hint}")
