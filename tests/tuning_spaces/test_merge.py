from typing import Any

import hjson
import pytest

from autoconf_launch.autotuner.space import ChoiceKind, KnobChoice
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.tuning_spaces import (
    EXTERNAL_RULES,
    BuiltinRules,
    Section,
    SpaceKnob,
    ZeroSearch,
    default_space,
    given_knobs,
    parse_space,
    zero_choices,
)

FREE, LISTED, PINNED = ChoiceKind.FREE, ChoiceKind.LISTED, ChoiceKind.PINNED
ALL = (0, 1, 2, 3)
NATIVE = default_space(Section.BUILTIN)


def native(
    *stages: int, file: str = "", default: bool = False, ranks: int = 4, **given: Any
) -> list[KnobChoice]:
    space: tuple[SpaceKnob, ...] = ()
    if file:
        space = parse_space(
            RawConfig(hjson.loads(f"{{zero_optimization: {{{file}}}}}")),
            Section.BUILTIN,
            "my.hjson",
        )
    search = ZeroSearch(
        stages=stages,
        given=tuple(given.items()),
        origin="c.json",
        file=space,
        default=NATIVE if default else (),
    )
    return list(zero_choices(search, BuiltinRules(ranks)))


def test_defaults_lists_and_values_of_the_user_become_choices_of_each_stage() -> None:
    assert native(*ALL) == []
    assert native(2, default=True) == [
        KnobChoice("blocks_per_unit", (None, 2, 4), FREE, (2,)),
        KnobChoice("forward_prefetch", (None, 1, 2), FREE, (2,)),
    ]
    found = {(c.stages, c.knob) for c in native(0, 1, bucket_cap_mb=[5, 25], default=True)}
    assert found == {
        ((0,), "bucket_cap_mb"),
        ((0,), "gradient_as_bucket_view"),
        ((1,), "bucket_cap_mb"),
        ((1,), "gradient_as_bucket_view"),
        ((1,), "parameters_as_bucket_view"),
    }
    replaced = native(0, bucket_cap_mb=[25, 50], default=True)
    assert replaced[0] == KnobChoice("bucket_cap_mb", (25, 50), LISTED, (0,))
    assert native(*ALL, bucket_cap_mb=25) == [
        KnobChoice("bucket_cap_mb", (25,), PINNED, (stage,)) for stage in (0, 1)
    ]


def test_a_file_is_searched_around_the_users_value_at_its_stages() -> None:
    found = native(0, file="bucket_cap_mb: [1, 25]", default=True)
    assert found[0] == KnobChoice("bucket_cap_mb", (1, None), FREE, (0,))
    found = native(0, bucket_cap_mb=50, file="bucket_cap_mb: [1, 25, 50]")
    assert found == [KnobChoice("bucket_cap_mb", (50, 1, 25), LISTED, (0,))]
    found = native(0, 1, bucket_cap_mb=50, file="stage: 1\n bucket_cap_mb: [1, 5]")
    assert found == [
        KnobChoice("bucket_cap_mb", (50,), PINNED, (0,)),
        KnobChoice("bucket_cap_mb", (50, 1, 5), LISTED, (1,)),
    ]
    assert native(0, 1, file="stage: [2, 3]\n blocks_per_unit: [2, 4]") == []


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        ({"default": True}, "default"),
        ({"default": True, "bucket_cap_mb": [1, 2]}, "c.json"),
        ({"bucket_cap_mb": 7, "file": "bucket_cap_mb: [1, 2]"}, "my.hjson"),
    ],
)
def test_a_choice_tells_where_its_values_come_from(options: dict[str, Any], origin: str) -> None:
    assert native(0, **options)[0].origin == origin


@pytest.mark.parametrize(
    "options",
    [{"blocks_per_unit": 2}, {"blocks_per_unit": [1, 2]}, {"file": "blocks_per_unit: 2"}],
)
def test_a_knob_that_no_searched_stage_has_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"zero_optimization.blocks_per_unit is .*, not stage 1"):
        native(0, 1, **options)


def test_values_that_cannot_be_applied_are_refused_or_left_out() -> None:
    with pytest.raises(ConfigError, match="8 must divide the 4 data-parallel ranks"):
        native(3, reshard_after_forward=[True, 2, 8])
    knobs = {choice.knob for choice in native(*ALL, default=True, ranks=1)}
    assert not knobs & {"bucket_cap_mb", "gradient_as_bucket_view"}
    with pytest.raises(ConfigError, match="bucket_cap_mb is 'x', but must be a whole number"):
        native(0, bucket_cap_mb=[5, "x"])


@pytest.mark.parametrize("file", ["reduce_bucket_size: [1, 2]", "overlap_comm: true"])
def test_a_knob_that_our_runtime_lacks_is_refused_by_name(file: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be searched: it is not a knob of this runtime"):
        native(0, file=file)


def foreign(document: dict[str, Any], *stages: int) -> list[KnobChoice]:
    given = given_knobs(RawConfig({"zero_optimization": document}))
    default = default_space(Section.DEEPSPEED)
    return list(
        zero_choices(ZeroSearch(stages=stages, given=given, default=default), EXTERNAL_RULES)
    )


def test_offload_and_overrides_of_a_foreign_script_are_kept_or_searched() -> None:
    found = foreign({"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}}, 3)
    pinned = {c.knob: c.values for c in found if c.how is PINNED}
    assert pinned == {"offload_param.device": ("cpu",), "offload_param.pin_memory": (True,)}
    found = foreign({"offload_optimizer": {"device": ["none", "cpu"]}}, 2)
    assert KnobChoice("offload_optimizer.device", ("none", "cpu"), LISTED, (2,)) in found
    found = foreign({"reduce_bucket_size": 5e8}, 1, 2, 3)
    assert [c.stages for c in found if c.knob == "reduce_bucket_size"] == [(1,), (2,), (3,)]
    zero = {"stage": 1, "reduce_bucket_size": "auto", "a": 1}
    assert given_knobs(RawConfig({"zero_optimization": zero})) == (("a", 1),)


@pytest.mark.parametrize("document", [{}, {"zero_optimization": "all"}])
def test_without_a_section_nothing_is_given(document: dict[str, Any]) -> None:
    assert given_knobs(RawConfig(document)) == ()
