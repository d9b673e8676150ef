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


def test_nothing_is_searched_where_nobody_lists_anything() -> None:
    assert native(*ALL) == []


def test_the_default_space_leaves_defaults_out_of_the_document() -> None:
    assert native(2, default=True) == [
        KnobChoice("blocks_per_unit", (None, 2, 4), FREE, (2,)),
        KnobChoice("forward_prefetch", (None, 1, 2), FREE, (2,)),
    ]


def test_each_stage_gets_the_knobs_that_it_has() -> None:
    found = {(c.stages, c.knob) for c in native(0, 1, bucket_cap_mb=[5, 25], default=True)}
    assert found == {
        ((0,), "bucket_cap_mb"),
        ((0,), "gradient_as_bucket_view"),
        ((1,), "bucket_cap_mb"),
        ((1,), "gradient_as_bucket_view"),
        ((1,), "parameters_as_bucket_view"),
    }


def test_the_users_list_replaces_that_of_the_default_space() -> None:
    found = native(0, bucket_cap_mb=[25, 50], default=True)
    assert found[0] == KnobChoice("bucket_cap_mb", (25, 50), LISTED, (0,))


def test_the_users_value_pins_it_at_every_stage_that_has_it() -> None:
    assert native(*ALL, bucket_cap_mb=25) == [
        KnobChoice("bucket_cap_mb", (25,), PINNED, (stage,)) for stage in (0, 1)
    ]


def test_a_file_weighs_more_than_the_default_space() -> None:
    found = native(0, file="bucket_cap_mb: [1, 25]", default=True)
    assert found[0] == KnobChoice("bucket_cap_mb", (1, None), FREE, (0,))


def test_a_file_is_searched_around_the_users_own_value() -> None:
    found = native(0, bucket_cap_mb=50, file="bucket_cap_mb: [1, 25, 50]")
    assert found == [KnobChoice("bucket_cap_mb", (50, 1, 25), LISTED, (0,))]


def test_a_file_may_be_for_some_stages() -> None:
    found = native(0, 1, bucket_cap_mb=50, file="stage: 1\n bucket_cap_mb: [1, 5]")
    assert found == [
        KnobChoice("bucket_cap_mb", (50,), PINNED, (0,)),
        KnobChoice("bucket_cap_mb", (50, 1, 5), LISTED, (1,)),
    ]


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


def test_a_file_for_other_stages_does_no_harm() -> None:
    assert native(0, 1, file="stage: [2, 3]\n blocks_per_unit: [2, 4]") == []


def test_a_listed_value_that_no_stage_can_apply_is_refused() -> None:
    with pytest.raises(ConfigError, match="8 must divide the 4 data-parallel ranks"):
        native(3, reshard_after_forward=[True, 2, 8])


def test_what_one_rank_cannot_apply_is_left_out_of_the_default_space() -> None:
    knobs = {choice.knob for choice in native(*ALL, default=True, ranks=1)}
    assert not knobs & {"bucket_cap_mb", "gradient_as_bucket_view"}


@pytest.mark.parametrize("file", ["reduce_bucket_size: [1, 2]", "overlap_comm: true"])
def test_a_knob_that_our_runtime_lacks_is_refused_by_name(file: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be searched: it is not a knob of this runtime"):
        native(0, file=file)


def test_a_value_that_a_knob_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="bucket_cap_mb is 'x', but must be a whole number"):
        native(0, bucket_cap_mb=[5, "x"])


def foreign(document: dict[str, Any], *stages: int) -> list[KnobChoice]:
    given = given_knobs(RawConfig({"zero_optimization": document}))
    default = default_space(Section.DEEPSPEED)
    return list(
        zero_choices(ZeroSearch(stages=stages, given=given, default=default), EXTERNAL_RULES)
    )


def test_offload_sections_of_a_foreign_script_are_kept() -> None:
    found = foreign({"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}}, 3)
    pinned = {c.knob: c.values for c in found if c.how is PINNED}
    assert pinned == {"offload_param.device": ("cpu",), "offload_param.pin_memory": (True,)}


def test_listed_offload_of_a_foreign_script_is_searched() -> None:
    found = foreign({"offload_optimizer": {"device": ["none", "cpu"]}}, 2)
    assert KnobChoice("offload_optimizer.device", ("none", "cpu"), LISTED, (2,)) in found


def test_overrides_of_a_foreign_script_apply_to_every_searched_stage() -> None:
    found = foreign({"reduce_bucket_size": 5e8}, 1, 2, 3)
    assert [c.stages for c in found if c.knob == "reduce_bucket_size"] == [(1,), (2,), (3,)]


@pytest.mark.parametrize("document", [{}, {"zero_optimization": "all"}])
def test_without_a_section_nothing_is_given(document: dict[str, Any]) -> None:
    assert given_knobs(RawConfig(document)) == ()


def test_auto_gives_nothing() -> None:
    zero = {"stage": 1, "reduce_bucket_size": "auto", "a": 1}
    assert given_knobs(RawConfig({"zero_optimization": zero})) == (("a", 1),)
