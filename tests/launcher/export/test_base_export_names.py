"""Names in exports of base configurations, beside what the frameworks' own code reads.

The lists are taken from the installed frameworks; each says from which version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.export import export_base
from autoconf_launch.launcher.spelling import parse_toml

from .test_base_export import DATA, DECODERS, base, flags

NEMO1_KINDS = {"t5": "t5", "mt5": "t5", "bert": "bert"}
AS_THEY_ARE = ("optim", "tokenizer")
"""Sections that NeMo hands on whole, to the optimizer and the tokenizer."""


@cache
def lines(framework: str) -> tuple[str, ...]:
    text = (DATA / "published" / f"{framework}.txt").read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def arguments(framework: str) -> dict[str, set[str]]:
    return {
        name: set(rest.split())
        for name, _, rest in (row.partition(":") for row in lines(framework))
    }


def nemo1_keys(family: str) -> set[str]:
    model = RawConfig(yaml.safe_load(export_base(base(family), "nemo1").text)["model"])
    return {".".join(path) for path, _ in model.leaves()}


def read_by_nemo1(family: str) -> set[str]:
    kind, listed = NEMO1_KINDS.get(family, "gpt"), arguments("nemo1")
    read = listed[f"{kind} read"] | listed[f"{kind} needed"] | listed["any fields"]
    stacks = {f"{stack}.{key}" for stack in ("encoder", "decoder") for key in listed["any fields"]}
    return read | stacks if kind == "t5" else read


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each function's name, or its first argument in ``run.Config(…)``, and its keywords."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("run.Config", "run.Partial"):
                called = ast.unparse(node.args[0])
            yield called, [word.arg for word in node.keywords if word.arg]


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_megatron_0_6_reads_every_argument(family: str) -> None:
    said = set(flags(export_base(base(family), "megatron").text))
    assert said <= {*lines("megatron_0.6.0")} & {*lines("megatron")}


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_nemo_1_reads_every_key_of_the_model(family: str) -> None:
    keys = {key for key in nemo1_keys(family) if key.partition(".")[0] not in AS_THEY_ARE}
    assert keys <= read_by_nemo1(family)


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_nemo_1_finds_every_key_that_it_has_no_default_for(family: str) -> None:
    keys = nemo1_keys(family)
    sections = {key[: dot.start()] for key in keys for dot in re.finditer(r"\.", key)}
    needed = arguments("nemo1")[f"{NEMO1_KINDS.get(family, 'gpt')} needed"]
    assert needed <= keys | sections


@pytest.mark.parametrize("family", [*KNOWN_FAMILIES, "falcon"])
def test_nemo_2s_classes_are_published_and_take_every_argument(family: str) -> None:
    known, used = arguments("nemo2_arguments"), set()
    for called, words in calls(export_base(base(family), "nemo2").text):
        name = called.rpartition(".")[2]
        used |= {called.removeprefix("llm.")} if called.startswith("llm.") else set()
        if name not in known:
            assert called in ("default_log", "bf16_mixed", "run.run")
            continue
        taken = known[name] | (known["GPTConfig"] if "+" in known[name] else set())
        assert set(words) <= taken, called
    assert {"pretrain"} < used <= set(lines("nemo2"))


@pytest.mark.parametrize("family", DECODERS)
def test_torchtitan_0_2s_flavors_take_every_argument(family: str) -> None:
    text = export_base(base(family), "torchtitan").text
    module = "\n".join(
        line.removeprefix("# ")
        for line in text.splitlines()
        if re.match(r"# (from \w|llama3\.|qwen3\.)", line)
    )
    for called, words in calls(module):
        name = called.rpartition(".")[2]
        assert {f"{name}.{word}" for word in words} <= set(lines("torchtitan"))
    document = parse_toml(text)
    assert {".".join(path) for path, _ in document.leaves()} <= set(lines("torchtitan"))
    assert document.get(("experimental", "custom_import")).endswith("_flavor")


@pytest.mark.parametrize("family", DECODERS)
def test_torchtitan_0_3s_functions_take_every_argument(family: str) -> None:
    text = export_base(base(family), "torchtitan_module").text
    known = arguments("torchtitan_0.3.0")
    places: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("torchtitan"):
            places |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    assert {place.removesuffix(".Config") for place in known} == set(places.values())
    for called, words in calls(text):
        name = called.removesuffix(".Config")
        if name in places:
            assert set(words) <= known[places[name] + called.removeprefix(name)], called
