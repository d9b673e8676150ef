"""Completion of the command line in bash, zsh and fish, by shtab from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence

from autoconf_launch.core import OPTIMIZER_STATES, ConfigError, Offload, Recompute, nearest_known
from autoconf_launch.tuning_spaces import (
    SCHEMAS,
    TRAINER_NAMES,
    model_names,
)

from .asked import PRECISIONS
from .exporters import BASE_EXPORTERS, EXPORTERS
from .extension_points import load_reference
from .flags import VerbParser
from .verbs import LAUNCH_PARSER, LAUNCHING, VERBS

SHELLS = ("bash", "zsh", "fish")
_WORDS = {
    "model": tuple(model_names()),
    "precision": PRECISIONS,
    "optimizer": tuple(OPTIMIZER_STATES),
    "trainer": TRAINER_NAMES,
    "recompute": tuple(kind.value for kind in Recompute),
    "offload": tuple(kind.value for kind in Offload),
    "objective": ("time", "cost"),
    "effort": ("quick", "normal", "thorough"),
    "to": tuple(dict.fromkeys((*EXPORTERS, *BASE_EXPORTERS))),
    "completion": SHELLS,
    "schema": tuple(SCHEMAS),
}
"""What a flag takes whose parser says it in an error instead of argparse's choices."""
_PATH = re.compile(r"(OUT|FILE|DIR|RESULTS|LANDSCAPE|SCRIPT|A|B|C)\b")


def completion(arguments: Sequence[str]) -> Iterator[str]:
    """What a shell reads to complete our command line.

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
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--completion", metavar="SHELL", help="print what a shell completes with")
    parser.add_argument("--schema", metavar="KIND", help="print the JSON Schema of a file")
    _describe(parser, paths)
    verbs = parser.add_subparsers(dest="verb")
    for name, answer in LAUNCHING.items():
        launch: VerbParser = load_reference(LAUNCH_PARSER)()
        launch.add_argument("script", metavar="SCRIPT", help="the training, and its arguments")
        launch.add_argument("arguments", nargs=argparse.REMAINDER, metavar="FILE")
        _describe(launch, paths)
        verbs.add_parser(name, help=answer, parents=[launch], add_help=False)
    for name, verb in VERBS.items():
        if " " in name:  # a sub-command of a command that takes a folder in its place
            continue
        own: VerbParser = load_reference(verb.parser)()
        _describe(own, paths)
        verbs.add_parser(name, help=verb.answers, parents=[own], add_help=False)
    return parser


def _describe(parser: VerbParser, paths: object) -> None:
    """Say of each flag which words it takes, or that it takes a path."""
    for action in parser._actions:
        if action.dest in _WORDS and action.choices is None:
            action.choices = _WORDS[action.dest]
        elif isinstance(action.metavar, str) and _PATH.match(action.metavar):
            action.complete = paths  # type: ignore[attr-defined]
