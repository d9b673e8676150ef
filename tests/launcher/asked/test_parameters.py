"""Each parameter is a flag, a keyword with its type and default, and a line of both helps."""

import importlib.util
import inspect
import re
from argparse import ArgumentTypeError
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import autoconf_launch
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import (
    Parameter,
    PlanCommand,
    PlanQuestion,
    asked_parameters,
    read_flags,
)
from autoconf_launch.launcher.asked.parameters import keyword_of, read_keywords
from autoconf_launch.launcher.commands.plan import plan
from autoconf_launch.launcher.commands.schema import question_schema
from autoconf_launch.launcher.verbs import VERBS, question_of_verb

ROOT = Path(__file__).parents[3]
EVERY = {
    f"{verb}: {one.dest}": (verb, one)
    for verb in ("tune", *VERBS)
    for one in asked_parameters(question_of_verb(verb))
}
KEYWORDS = {
    name: (function, one)
    for name, (verb, one) in EVERY.items()
    if (function := getattr(autoconf_launch, re.sub(r"\W+", "_", verb), None))
    and one.dest in inspect.signature(function).parameters
}
WORK = ("--model", "gpt2", "--cluster", "8xH100", "--seq", "1k", "--global-batch", "64")
WORK_KEYWORDS = {"model": "gpt2", "cluster": ("8xH100",), "seq": 1024, "global_batch": 64}


def verb(name: str) -> Any:
    return getattr(autoconf_launch, name)


def checks(one: Parameter) -> bool:
    """True if its default is a value that its unit must take."""
    return one.default is not MISSING and not one.is_open and one.default not in ((), float("inf"))


@pytest.fixture(scope="module")
def tables() -> str:
    """The tables of keywords in the documents."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    assert {"tune", *VERBS} <= set(site._verbs())
    text: str = site.keywords()
    return text


@pytest.mark.parametrize("verb", ["tune", *VERBS])
def test_every_parameter_is_in_the_help_and_the_schema(verb: str) -> None:
    kind = question_of_verb(verb)
    parser, schema = kind.parser(), question_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = "".join(parser.format_help().split())
    for one in asked_parameters(kind):
        for part in one.parts:
            assert "".join(part.asked.about.split()) in text
            assert set(part.flags) <= parser._option_string_actions.keys()
            assert bool(part.flags) != bool(part.asked.unit.place)
        said = schema["properties"].pop(one.dest)
        assert said["description"] == one.asked.about
        assert said["flags"] == [flag for part in one.parts for flag in part.flags]
        assert (one.dest in schema["required"]) is (one.default is MISSING)
    assert not schema["properties"]


def test_the_schema_lists_choices_and_asks_for_a_model() -> None:
    schema = question_schema(question_of_verb("plan"))
    properties = schema["properties"]
    assert properties["objective"]["enum"] == ["time", "cost"]
    assert properties["csv_form"]["enum"] == ["full", "fasop"]
    assert "megatron" in properties["export"]["items"]["enum"]
    assert properties["headroom"]["default"] == 0.1
    assert properties["headroom"]["description"].endswith("default 10 %")
    assert {"required": ["model"]} in schema["anyOf"]


@pytest.mark.parametrize("name", [name for name, (_, one) in EVERY.items() if checks(one)])
def test_the_schema_takes_every_default(name: str) -> None:
    verb, one = EVERY[name]
    schema = question_schema(question_of_verb(verb))
    of_value = {**schema["properties"][one.dest], "$defs": schema.get("$defs", {})}
    jsonschema.validate(of_value["default"], of_value)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("tokens", (10**12, "2T", None), (0, 10**19, 1.5)),
        ("seq", (8192, "8k", None), (0, 2**31 + 1)),
        ("top", (0, 10, "0", None), (-1, 2**24 + 1)),
        ("headroom", (0, 0.5, "10%"), (1, -0.1)),
        ("deadline_s", (1.5, "5d"), (0,)),
        ("lora_rank", (8, "8"), (0, 2**16 + 1)),
        ("explain", (True,), ("yes", 1)),
    ],
)
def test_the_schema_has_ranges_and_takes_words(
    name: str, right: tuple[object, ...], wrong: tuple[object, ...]
) -> None:
    of_value = question_schema(question_of_verb("plan"))["properties"][name]
    taken = jsonschema.Draft202012Validator(of_value)
    assert [taken.is_valid(one) for one in right] == [True] * len(right)
    assert [taken.is_valid(one) for one in wrong] == [False] * len(wrong)


@pytest.mark.parametrize("name", KEYWORDS)
def test_every_keyword_has_its_type_its_default_and_its_line(name: str, tables: str) -> None:
    function, one = KEYWORDS[name]
    given = inspect.signature(function).parameters[one.name]
    assert not isinstance(given.annotation, str)
    about = one.asked.about.replace("|", "\\|")
    assert f"| `{one.name}` | " in tables
    assert f"| {about} |" in tables
    if given.kind is inspect.Parameter.KEYWORD_ONLY:
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        assert given.default == default
        assert f"    {one.name} (" in function.__doc__


COMMAND_ONLY = {
    *("json", "html", "csv", "csv_form", "rows", "export", "row", "output", "quiet", "log_level"),
    *("inference", "cluster_template", "preset", "prices", "layer_times", "pareto", "time_limit"),
    *("base_config", "custom_config", "wandb_project", "dry_run", "autotuning", "is_module"),
    *("is_program", "local_rank_flag", "binds_cores", "cores", "rank_log_folder", "redirects"),
    *("save_pid", "ignored"),
}
"""Flags of output, of files, and of starting other things than a Python script."""


def test_every_other_parameter_of_a_python_verb_is_a_keyword() -> None:
    verbs = {name.partition(":")[0] for name in KEYWORDS}
    assert verbs == {"fit", "plan", "fit --inference", "plan --inference", "recommend"} | {
        "tune",
        "validate",
    }
    others = {
        one.dest for name, (verb, one) in EVERY.items() if verb in verbs and name not in KEYWORDS
    }
    of_hosts = {name for name in others if "." in name}
    assert others - of_hosts == COMMAND_ONLY


@pytest.mark.parametrize("name", [name for name, (_, one) in KEYWORDS.items() if checks(one)])
def test_every_default_is_a_value_that_is_accepted(name: str) -> None:
    _, one = KEYWORDS[name]
    assert one.asked.unit.refuse(one.default) is None


WORDS = (
    *("2", "0", "8k", "2T", "300B", "10%", "30d", "20m", "$5M", "2.5", "70GB", "1,2", "4-7,0-3"),
    *("restart_s=600", "--workers=[0,2]", "gas=--steps", "llama", "embedding", "0,2-4", "x"),
    *("random", '{"num_params": 7}'),
)
"""Words that people write on a command line."""


@pytest.mark.parametrize(
    "name", [name for name, (_, one) in KEYWORDS.items() if one.asked.unit.takes_word]
)
def test_a_keyword_takes_what_its_flag_takes(name: str) -> None:
    _, one = KEYWORDS[name]
    for part in one.parts:
        unit, taken = part.asked.unit, 0
        for word in (*WORDS, *unit.known) if unit.takes_word else ():
            try:
                read = unit.read(word)
            except (ArgumentTypeError, ConfigError):
                continue
            taken += 1
            if part is not one:
                assert one.keyword_value({part.name: word}) == {part.name: read}
            else:
                listed = unit.action == "append" and read != word
                assert one.keyword_value(word) == ((read,) if listed else read)
        assert taken or not unit.takes_word


NUMBERS = (-1, 0, 1, 2, 4, 16, 1000)


@pytest.mark.parametrize("name", [*KEYWORDS])
def test_a_whole_number_is_the_same_as_a_keyword_and_as_a_word(name: str) -> None:
    _, one = KEYWORDS[name]
    if one.asked.parts or not one.asked.unit.takes_word:
        return
    for number in NUMBERS:
        try:
            by_word = one.keyword_value(str(number))
        except ConfigError:
            continue
        if isinstance(by_word, (str, Path)) or one.name == "headroom":  # 2 % is 0.02
            continue
        assert one.keyword_value(number) == by_word


def test_all_rows_are_asked_for_by_zero() -> None:
    asked = read_keywords("plan", PlanQuestion, {**WORK_KEYWORDS, "top": 0})
    assert asked.top is None


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"layerz": 12}, "'layerz' is not a key of it; did you mean 'layers'?"),
        ({"layers": 0}, "shapes['layers'] is 0; it must be a whole number from 1"),
        ({"gated": "yes"}, "shapes['gated'] is 'yes'; it must be True or False."),
        ({"latent": 5}, "'latent' must be a LatentAttention"),
        ({"window": "x"}, "'window' must be an int"),
        (5, "shapes is 5; it must be a mapping of names to values."),
    ],
)
@pytest.mark.parametrize("name", ["fit", "plan"])
def test_a_wrong_key_of_a_mapping_is_named(name: str, shapes: object, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        verb(name)(**{**WORK_KEYWORDS, "cluster": "8xH100", "shapes": shapes})


def test_a_wrong_key_of_the_settings_is_named() -> None:
    with pytest.raises(ConfigError, match="'metrik' is not a key of it; did you mean 'metric'"):
        verb("tune")("absent.py", settings={"metrik": "latency"})


SERVING = {"model": "gpt2", "cluster": "H100", "input_len": 64, "output_len": 8}
ASKED: dict[str, dict[str, Any]] = {
    "fit": {**WORK_KEYWORDS, "cluster": "H100"},
    "plan": {**WORK_KEYWORDS, "cluster": "H100"},
    "fit_inference": SERVING,
    "plan_inference": SERVING,
    "recommend": {"family": "llama", "tokens_b": 2.0, "max_days": 30.0, "cluster": "H100"},
    "validate": {"files": "absent.csv"},
    "tune": {"script": "absent.py"},
}


@pytest.mark.parametrize(
    ("name", "keyword"),
    [(name, one) for name in ASKED for one in inspect.signature(verb(name)).parameters],
)
def test_a_value_of_no_use_is_refused_by_its_keyword(name: str, keyword: str) -> None:
    def ask(value: object) -> str:
        try:
            verb(name)(**{**ASKED[name], keyword: value})
        except ConfigError as error:
            return str(error)
        return ""

    nothing = object()
    assert re.match(rf"{keyword} (is|has) {re.escape(repr(nothing))}; .*[.?]$", ask(nothing))
    for value in (-5, "x", {"foo": 1}, [], [-5], [nothing]):
        assert f"{keyword} {keyword}" not in ask(value)


@pytest.mark.parametrize("keyword", ["budget", "good_enough"])
def test_a_limit_in_words_is_refused_by_its_keyword_once(keyword: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{keyword} is '-5', but must be"):
        verb("tune")("absent.py", **{keyword: "-5"})


def test_words_in_keywords_ask_the_same_as_numbers() -> None:
    words = {"headroom": "10%", "tokens": "2T", "deadline_s": "30d", "max_cost_usd": "$5M"}
    words |= {"seq": "8k", "memory_bytes": "70GB", "top": "0"}
    numbers = {"headroom": 0.1, "tokens": 2 * 10**12, "deadline_s": 30 * 86400.0, "top": None}
    numbers |= {"max_cost_usd": 5e6, "seq": 8192, "memory_bytes": 70 * 10**9}
    by_words, by_numbers = (
        read_keywords("plan", PlanQuestion, {**WORK_KEYWORDS, **one}) for one in (words, numbers)
    )
    assert by_words == by_numbers


@pytest.mark.parametrize(
    ("keyword", "says"),
    [
        ({"tokens": "300"}, "tokens '300' is 300 tokens; did you mean 300B?"),
        ({"headroom": "ten"}, "headroom 'ten' must be a percentage from 0 to below 100."),
        ({"headroom": None}, "headroom is None; it must be a share from 0 to below 1."),
        ({"memory_bytes": "70"}, "memory_bytes '70' has no unit; write for example 70GB."),
        ({"memory_bytes": 7.5}, "memory_bytes is 7.5; it must be a whole number"),
        ({"cluster": 3}, "cluster is 3; it must be text."),
        ({"shapes": {"layers": "x"}}, "shapes['layers'] 'x' must be a whole number"),
    ],
)
def test_a_wrong_word_in_a_keyword_is_named(keyword: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        verb("plan")(**{**WORK_KEYWORDS, **keyword})


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
    for one in asked_parameters(PlanQuestion):
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


def test_the_front_names_what_it_leaves_out() -> None:
    own = ["--model", "llama3-8b", "--cluster", "8xH100", "--seq", "2k", "--global-batch", "64"]
    note = "--pareto searches neither context parallelism"
    assert note in "\n".join(plan([*own, "--pareto"]))
    assert note not in "\n".join(plan(own))
