import math

import hjson
import pytest

from autoconf_launch.core import RUNTIME_KNOBS, ZERO_STAGES, ConfigError, RawConfig
from autoconf_launch.tuning_spaces import Section, SpaceKnob, default_space, parse_space

STAGES = range(4)


def knobs(text: str, section: Section = Section.BUILTIN) -> tuple[SpaceKnob, ...]:
    return parse_space(RawConfig(hjson.loads(text)), section, "s")


def combinations(section: Section, stage: int) -> int:
    return math.prod(len(k.values) for k in default_space(section) if stage in k.stages)


@pytest.mark.parametrize(("stage", "count"), [(0, 1), (1, 9), (2, 72), (3, 144)])
def test_the_shipped_spaces_for_deepspeed_have_its_combinations(stage: int, count: int) -> None:
    assert combinations(Section.DEEPSPEED, stage) == count


@pytest.mark.parametrize("stage", STAGES)
def test_the_shipped_native_spaces_stay_small(stage: int) -> None:
    assert 1 < combinations(Section.BUILTIN, stage) <= 20


def test_shipped_spaces_name_their_origin_and_list_what_can_be_applied() -> None:
    for knob in default_space(Section.BUILTIN):
        row = RUNTIME_KNOBS[knob.name]
        for stage in knob.stages:
            for value in knob.values:
                assert row.read(value) == value
                assert row.obstacle(zero_stage=stage, data_parallel=4, value=value) is None
    for knob in default_space(Section.BUILTIN):
        assert RUNTIME_KNOBS[knob.name].default in knob.values
    assert {k.origin for k in default_space(Section.BUILTIN)} == {"default"}
    assert {k.origin for k in default_space(Section.DEEPSPEED)} == {
        f"zero_{stage}.hjson" for stage in STAGES[1:]
    }


def test_knobs_are_read_with_their_stages_types_and_dotted_names() -> None:
    (knob,) = knobs("{zero_optimization: {x: [5e7, 1.5]}}")
    assert [(type(value), value) for value in knob.values] == [(int, 50_000_000), (float, 1.5)]
    text = """{native: [
        {zero_optimization: {stage: [0, 1], a: 1}}
        {zero_optimization: {stage: 3, a: [2, 3]}}
    ]}"""
    found = knobs(text)
    assert [(k.stages, k.values) for k in found] == [((0, 1), (1,)), ((3,), (2, 3))]
    (knob,) = knobs('{compile_mode: ["off", "default"]}')
    assert (knob.name, knob.values, knob.stages) == (
        "compile_mode",
        ("off", "default"),
        ZERO_STAGES,
    )
    assert knobs("{native: {zero_optimization: {a: 1}}}", Section.DEEPSPEED) == ()
    text = "{zero_optimization: {offload_optimizer: {device: [none, cpu]}}}"
    (knob,) = knobs(text.replace("[none, cpu]", '["none", "cpu"]'), Section.DEEPSPEED)
    assert (knob.name, knob.values) == ("offload_optimizer.device", ("none", "cpu"))


@pytest.mark.parametrize("stage", ["", 'stage: "all"', "stage: null"])
def test_without_a_stage_a_knob_is_for_all(stage: str) -> None:
    (knob,) = knobs(f"{{zero_optimization: {{{stage}\n a: 1}}}}")
    assert knob.stages == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{nativ: {}}", r"nativ is not a section of a tuning space; did you mean 'native'\?"),
        ("{native: 3}", "native must be an object with zero_optimization"),
        ("{native: {bf16: {enabled: true}}}", "bf16 is given in a tuning space, which lists"),
        ("{zero_optimization: 3}", "must be an object with zero_optimization"),
        ("{zero_optimization: {stage: 4}}", "stage is 4, but ZeRO has stages 0 to 3"),
        ("{zero_optimization: {stage: []}}", r"stage is \[\]"),
        ("{zero_optimization: {stage: true}}", "stage is True"),
        ("{zero_optimization: {a: []}}", "a must be a value or a list of values"),
        ("{zero_optimization: {a: [[1]]}}", "a must be a value or a list of values"),
        ("{zero_optimization: {a: {}}}", "a must be a value or a list of values"),
    ],
)
def test_what_is_no_space_is_refused_with_its_file(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        knobs(text)
    assert str(caught.value).startswith("s")
