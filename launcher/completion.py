"""Completion of the command line in bash, zsh and fish, by shtab from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence

from autoconf_launch.core import ConfigError, nearest_known
from autoconf_launch.tuning_spaces import model_names

from .asked import VerbParser, asked_parameters
from .commands.schema import schema_names
from .verbs import LAUNCHING, VERBS, question_of_verb

SHELLS = ("bash", "zsh", "fish")
_PATH = re.compile(r"(OUT|FILE|DIR|RESULTS|LANDSCAPE|SCRIPT|A|B|C)\b")


def completion(arguments: Sequence[str]) -> Iterator[str]:
    """The text that a shell reads to complete our command line.

    Raises:
        ConfigError: another shell, or shtab is not installed.
    """
    shell = " ".join(arguments)
    if shell not in SHELLS:
        known = nearest_known(shell, SHELLS)
        raise ConfigError(f"--completion takes the name of a shell, but is {shell!r}; {known}")
    try:
        import shtab
    except ImportError:
        raise ConfigError(
            "--completion needs shtab; install it: pip install 'autoconf-launch[completion]'."
        ) from None
    parser = _whole_parser(shtab.FILE)
    yield str(shtab.complete(parser, shell=shell)).rstrip("\n")


def _whole_parser(paths: object) -> VerbParser:
    """All verbs as one parser with sub-commands; ``paths`` is shtab's word for files."""
    parser = VerbParser(prog="autoconf-launch")
    add = parser.add_argument
    add("--version", action="store_true", help="print the version")
    add("--completion", choices=SHELLS, help="print what a shell completes with")
    add("--schema", choices=schema_names(), help="print the JSON Schema of a file or a verb")
    verbs = parser.add_subparsers(dest="verb")
    for name, answer in LAUNCHING.items():
        launch = _parser_of(name, paths)
        script = launch.add_argument("script", metavar="SCRIPT", help="the training")
        others = launch.add_argument("arguments", nargs=argparse.REMAINDER)
        script.complete = others.complete = paths  # type: ignore[attr-defined]
        verbs.add_parser(name, help=answer, parents=[launch], add_help=False)
    for name, verb in VERBS.items():
        if " " in name:  # a sub-command of a command that takes a folder in its place
            continue
        own = _parser_of(name, paths)
        verbs.add_parser(name, help=verb.answers, parents=[own], add_help=False)
    return parser


def _parser_of(verb: str, paths: object) -> VerbParser:
    """The parser of a verb, with the words or paths that each flag takes."""
    kind = question_of_verb(verb)
    parser = kind.parser()
    units = {part.dest: part.asked.unit for one in asked_parameters(kind) for part in one.parts}
    for action in parser._actions:
        unit = units.get(action.dest)
        known = tuple(model_names()) if action.dest == "model" else unit and unit.known
        if unit and unit.takes_word and known:
            action.choices = known
        elif isinstance(action.metavar, str) and _PATH.match(action.metavar):
            action.complete = paths  # type: ignore[attr-defined]
    return parser
