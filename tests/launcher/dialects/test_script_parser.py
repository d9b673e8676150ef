"""Flags that a script's parser takes, if its source names all of them."""

from __future__ import annotations

import pytest

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.script import ScriptSource, refused_flags

PARSER = """import argparse, sys
parser = argparse.ArgumentParser(description="mine")
parser.add_argument("data", nargs="*")
parser.add_argument("-b", "--batch-size", type=int)
group = parser.add_argument_group("more")
group.add_argument("--amp", action=argparse.BooleanOptionalAction)
{}
arguments = parser.parse_args()
"""
FLAGS = frozenset({"-h", "--help", "data", "-b", "--batch-size", "--amp", "--no-amp"})


def flags_of(text: str, *modules: str) -> frozenset[str] | None:
    source = ScriptSource(
        script_args=(), config=RawConfig({}), config_argument=None, text=text, modules=modules
    )
    return source.flags


def test_a_parser_that_stands_in_the_source_has_its_flags_and_help() -> None:
    assert flags_of(PARSER.format("")) == FLAGS


def test_what_an_own_function_adds_counts() -> None:
    more = "def add_more_arguments(p):\n    p.add_argument('--x')\nadd_more_arguments(parser)"
    assert flags_of(PARSER.format(more)) == FLAGS | {"--x"}


def test_a_parser_of_an_own_module_counts() -> None:
    assert flags_of("import options\noptions.parse()", PARSER.format("")) == FLAGS


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed.add_config_arguments(parser)",
        "Trainer.add_argparse_args(parser)",
        "register(parser)",
        "parser.parse_known_args()",
        "parser.add_argument(*names)",
        "parser.add_argument(f'--{name}')",
        "parser.add_argument('--x', **options)",
        "parser.add_argument('rest', nargs=argparse.REMAINDER)",
        "parser.add_argument('rest', nargs='...')",
        "sys.argv.remove('--quiet')",
        "sys.argv = sys.argv[:1]",
        "sys.argv[1:] = []",
        "other = argparse.ArgumentParser(parents=[parser])",
        "import jsonargparse",
        "def broken(",
    ],
)
def test_where_others_may_be_taken_nothing_is_said(line: str) -> None:
    assert flags_of(PARSER.format(line)) is None


@pytest.mark.parametrize(
    "text", ["", "import sys", PARSER.format("").replace("parse_args()", "parse_args([])")]
)
def test_without_a_parser_of_the_command_line_nothing_is_said(text: str) -> None:
    assert flags_of(text) is None


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--batch-size", "4", "--batch-size=4", "-b4", "-b", "4", "-h"), []),
        (("--batch", "4"), []),
        (("--no-amp", "-1", "-", "file"), []),
        (("--quiet", "--x=1", "-q", "--batch_size=4"), ["--quiet", "--x", "-q", "--batch_size"]),
        (("--", "--quiet"), []),
    ],
)
def test_a_parser_refuses_what_it_does_not_have(
    words: tuple[str, ...], refused: list[str]
) -> None:
    assert list(refused_flags(words, FLAGS)) == refused
