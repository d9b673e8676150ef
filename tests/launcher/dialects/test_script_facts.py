from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.script import Declared, ScriptSource, facts_of, refused_flags


def test_arguments_are_read_with_aliases_and_defaults() -> None:
    text = 'p.add_argument("-b", "--batch-size", type=int, default=64)'
    assert facts_of(text).declared == (Declared(names=("-b", "--batch-size"), default=64),)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        *((written, 64) for written in ("64", "'64'", "SIZE", "2**6", "8 * 8")),
        *((written, None) for written in ("size()", "10**100", "2**-1", "config.size")),
    ],
)
def test_a_default_may_be_written_in_many_ways(written: str, found: int | None) -> None:
    text = f'SIZE = 64\np.add_argument("--bs", default={written})'
    (declared,) = facts_of(text).declared
    assert (declared.default, declared.switch) == (found, False)


def test_a_switch_is_told_from_a_value_and_a_product_of_literals_is_a_constant() -> None:
    (declared,) = facts_of('p.add_argument("--amp", action="store_true")').declared
    assert declared.switch
    assert dict(facts_of("steps = 5 * 8\nname = f()").constants) == {"steps": 40}


def test_fields_of_a_dataclass_are_arguments_where_a_parser_makes_them() -> None:
    fields = "@dataclass\nclass A:\n    batch_size: int = 4\n"
    assert facts_of(f"import tyro\n{fields}").declared == (
        Declared(names=("--batch_size",), default=4),
    )
    assert facts_of(fields).declared == ()


@pytest.mark.parametrize(
    "line",
    [
        "gradient_accumulation_steps //= ddp_world_size",
        "args.gradient_accumulation_steps = int(args.gradient_accumulation_steps / ranks)",
    ],
)
def test_what_is_divided_and_kept_is_known(line: str) -> None:
    assert "gradient_accumulation_steps" in facts_of(line).divided


def test_keywords_of_calls_are_read_and_unknown_values_are_none() -> None:
    facts = facts_of("t = pl.Trainer(max_steps=3, strategy=args.strategy)")
    steps, strategy = facts.keyword("Trainer", "max_steps"), facts.keyword("Trainer", "strategy")
    assert (steps and steps.value, strategy and strategy.value) == (3, None)
    assert facts.keyword("Trainer", "logger") is None


def test_parts_of_a_package_count_as_imports_of_it() -> None:
    facts = facts_of("from transformers import Trainer\nimport torch.nn as nn")
    assert facts.imports("transformers.Trainer")
    assert facts.imports("torch")
    assert not facts.imports("transform")


@given(st.text(max_size=200))
def test_any_text_has_facts(text: str) -> None:
    assert facts_of(text).declared is not None


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["MASTER_PORT"] = "12355"',
        'os.environ.update(MASTER_PORT="12355")',
        'dist.init_process_group("gloo", init_method="tcp://127.0.0.1:12355", rank=0)',
        'dist.init_process_group("gloo", init_method=f"tcp://{host}:12355", rank=0)',
    ],
)
def test_a_script_may_say_itself_where_its_ranks_meet(line: str) -> None:
    assert facts_of(line).says_where_to_meet


@pytest.mark.parametrize(
    "line",
    ['port = os.environ["MASTER_PORT"]', 'os.environ.setdefault("MASTER_PORT", "12355")'],
)
def test_a_script_that_takes_what_it_is_given_does_not_say_where_to_meet(line: str) -> None:
    assert not facts_of(line).says_where_to_meet


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("steps = total // (b * t * world)", {"steps"}),
        ("self.steps: int = max(1, 64 // b)", {"steps"}),
        ("def steps(self, n):\n    return self.total(n) // self.b", {"steps"}),
        ("steps = steps // world\nsteps //= world\nloss(a / b)", set()),
    ],
)
def test_what_is_made_by_a_division_of_something_else_is_known(text: str, names: set[str]) -> None:
    assert facts_of(text).quotients == names


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("n = a.total // a.micro", {("total", "micro")}),
        ("loss / (b * world)", {("loss", "b"), ("loss", "world")}),
        ("n = a * b", set()),
    ],
)
def test_names_that_are_divided_by_each_other_are_known(
    text: str, pairs: set[tuple[str, str]]
) -> None:
    found = {pair for pair in facts_of(text).ratios if pair[1] != "a"}
    assert found == pairs


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
