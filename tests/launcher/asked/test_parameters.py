"""Each parameter is a flag, a keyword with its type and default, and a line of both helps."""

import inspect
from dataclasses import MISSING, fields
from typing import Any

import pytest

import autoconf_launch
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked.parameters import (
    VerbQuestion,
    keyword_of,
    read_flags,
    read_keywords,
)
from autoconf_launch.launcher.asked.recommending import RecommendCommand, RecommendQuestion
from autoconf_launch.launcher.asked.serving import (
    FitInferenceCommand,
    FitInferenceQuestion,
    PlanInferenceCommand,
    PlanInferenceQuestion,
)
from autoconf_launch.launcher.asked.training import FitQuestion, PlanQuestion
from autoconf_launch.launcher.asked.training_commands import FitCommand, PlanCommand

PAIRS: dict[str, tuple[type[VerbQuestion], type[VerbQuestion]]] = {
    "fit": (FitQuestion, FitCommand),
    "plan": (PlanQuestion, PlanCommand),
    "fit_inference": (FitInferenceQuestion, FitInferenceCommand),
    "plan_inference": (PlanInferenceQuestion, PlanInferenceCommand),
    "recommend": (RecommendQuestion, RecommendCommand),
}
WORK = ("--model", "gpt2", "--cluster", "8xH100", "--seq", "1k", "--global-batch", "64")
WORK_KEYWORDS = {"model": "gpt2", "cluster": ("8xH100",), "seq": 1024, "global_batch": 64}


def verb(name: str) -> Any:
    return getattr(autoconf_launch, name)


def parameters(kind: type[VerbQuestion]) -> list[Any]:
    return [one for one in fields(kind) if "asked" in one.metadata]


@pytest.mark.parametrize("name", PAIRS)
def test_every_parameter_is_a_flag_with_a_line_in_the_help(name: str) -> None:
    _, command = PAIRS[name]
    parser = command.parser()
    text = " ".join(parser.format_help().split())
    for one in parameters(command):
        asked = one.metadata["asked"]
        lines = [about for _, about in asked.parts.values()] or [asked.about]
        assert all(line.split(", ")[0].split("-")[0] in text for line in lines)
        flags = [f"--{part.replace('_', '-')}" for part in asked.parts] or [
            (asked.flag or f"--{one.name.replace('_', '-')}").split()[-1]
        ]
        assert set(flags) <= parser._option_string_actions.keys()


@pytest.mark.parametrize("name", PAIRS)
def test_every_parameter_is_a_keyword_with_its_type_and_default(name: str) -> None:
    question, _ = PAIRS[name]
    found = inspect.signature(verb(name)).parameters
    assert found.keys() == {one.name for one in parameters(question)}
    for one in parameters(question):
        given = found[one.name]
        assert given.kind is inspect.Parameter.KEYWORD_ONLY
        assert not isinstance(given.annotation, str)
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        assert given.default == default
        assert f"    {one.name} (" in verb(name).__doc__


@pytest.mark.parametrize("name", PAIRS)
def test_every_default_is_a_value_that_is_accepted(name: str) -> None:
    question, _ = PAIRS[name]
    for one in parameters(question):
        may_be_open = "None" in str(one.type) or one.default in ((), float("inf"))
        if one.default is not MISSING and not may_be_open:
            assert one.metadata["asked"].unit.refuse(one.default) is None


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        (("--deadline", "5d", "--tokens", "1.5T"), {"deadline_s": 432e3, "tokens": 15 * 10**11}),
        (("--max-cost", "$5M", "--tokens", "1T"), {"max_cost_usd": 5e6, "tokens": 10**12}),
        (
            (
                "--memory-limit",
                "70GB",
            ),
            {"memory_bytes": 70 * 10**9},
        ),
        (("--top", "0", "--headroom", "20%"), {"top": None, "headroom": 0.2}),
        (("--layers", "3", "--no_gated"), {"shapes": {"layers": 3, "gated": False}}),
        (("--lora_rank=8", "--weights", "NF4"), {"lora_rank": 8, "weights": "nf4"}),
    ],
)
def test_a_flag_and_its_keyword_ask_the_same(
    flags: tuple[str, ...], keywords: dict[str, Any]
) -> None:
    by_flags = read_flags(PlanCommand, (*WORK, *flags))
    by_keywords = read_keywords("plan", PlanQuestion, {**WORK_KEYWORDS, **keywords})
    for one in parameters(PlanQuestion):
        assert getattr(by_flags, one.name) == getattr(by_keywords, one.name)


@pytest.mark.parametrize(
    ("flag", "keyword", "end"),
    [
        (("--lora-rank", "0"), {"lora_rank": 0}, "must be a whole number from 1 to 65536"),
        (("--trainer", "megatrn"), {"trainer": "megatrn"}, "did you mean 'megatron'?"),
        (
            ("--deadline", "5d"),
            {"deadline_s": 432e3},
            "bounds the whole training; give its (--)?tokens too, such as 15T",
        ),
        (
            ("--verify", "2", "--cluster", "8xA100"),
            {"verify": 2, "cluster": ["8xH100", "8xA100"]},
            "is about the layouts of one cluster; give one (--)?cluster",
        ),
    ],
)
def test_a_flag_and_its_keyword_are_refused_alike(
    flag: tuple[str, ...], keyword: dict[str, Any], end: str
) -> None:
    sentence = end.replace("?", r"\?") if end.endswith("?") else end
    with pytest.raises(ConfigError, match=sentence):
        read_flags(PlanCommand, (*WORK, *flag))
    with pytest.raises(ConfigError, match=rf"^{next(iter(keyword))} .*{sentence}"):
        verb("plan")(**{**WORK_KEYWORDS, **keyword})


def test_a_flag_with_another_name_is_found_by_its_keyword() -> None:
    assert keyword_of(PlanQuestion, "--max-cost") == "max_cost_usd"
    assert keyword_of(PlanQuestion, "--kv-heads") == "shapes['kv_heads']"
    assert keyword_of(PlanQuestion, "--csv") is None


def test_what_equals_its_default_is_not_given() -> None:
    asked = read_keywords("plan", PlanQuestion, {**WORK_KEYWORDS, "top": 10, "explain": True})
    assert "--explain" in asked.given
    assert "--top" not in asked.given


def test_a_verb_takes_keywords_only() -> None:
    with pytest.raises(ConfigError, match="fit takes keywords only, got 'gpt2'"):
        verb("fit")("gpt2", cluster="8xH100", seq=1024, global_batch=64)
