from collections import Counter

import pytest

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
    candidate_name,
)
from autoconf_launch.core import Candidate, ConfigError, KnobValue, Layout

FREE, LISTED, PINNED = ChoiceKind.FREE, ChoiceKind.LISTED, ChoiceKind.PINNED
STAGES = KnobChoice("zero_stage", (0, 1, 2), ChoiceKind.FREE)


def space(*choices: KnobChoice, extras: tuple[tuple[str, KnobValue], ...] = ()) -> SearchSpace:
    baseline = Candidate(layout=Layout(data_parallel=2, accumulation=2), extras=extras)
    rule = GlobalBatchRule(pinned=baseline.layout.global_batch)
    return build_space(baseline, choices, rule, AutotuningSettings())


def names(found: SearchSpace, *, usual: bool | None = None) -> list[str]:
    rows = range(len(found.table))
    return [
        candidate_name(found.table.row(i))
        for i in rows
        if usual is None or bool(found.usual_C[i]) == usual
    ]


def test_a_choice_of_one_stage_says_nothing_of_others() -> None:
    found = space(STAGES, KnobChoice("bucket_cap_mb", (5, 100), FREE, (1,)))
    assert names(found, usual=False) == ["z1_bcm5_gas2_tmbspg1", "z1_bcm100_gas2_tmbspg1"]


def test_free_knobs_are_usually_left_out() -> None:
    found = space(STAGES, KnobChoice("bucket_cap_mb", (5, 100), FREE, (1,)))
    assert names(found, usual=True) == ["z1_gas2_tmbspg1", "z2_gas2_tmbspg1"]


def test_every_combination_is_a_candidate_once() -> None:
    found = space(
        KnobChoice("bucket_cap_mb", (5, None), FREE, (0,)),
        KnobChoice("gradient_as_bucket_view", (None, False), FREE, (0,)),
    )
    assert Counter(names(found)) == Counter(
        ["z0_gbvF_gas2_tmbspg1", "z0_bcm5_gas2_tmbspg1", "z0_bcm5_gbvF_gas2_tmbspg1"]
    )


def test_listed_knobs_usually_have_their_first_value() -> None:
    listed = KnobChoice("bucket_cap_mb", (25, 5), LISTED, (0, 1))
    found = space(STAGES, listed, extras=(("bucket_cap_mb", 25),))
    assert names(found, usual=True) == ["z1_bcm25_gas2_tmbspg1", "z2_gas2_tmbspg1"]
    assert names(found, usual=False) == ["z0_bcm5_gas2_tmbspg1", "z1_bcm5_gas2_tmbspg1"]


def test_a_pinned_knob_is_left_out_where_it_does_not_apply() -> None:
    pinned = KnobChoice("bucket_cap_mb", (5,), PINNED, (0, 1))
    found = space(STAGES, pinned, extras=(("bucket_cap_mb", 5),))
    assert names(found) == ["z1_bcm5_gas2_tmbspg1", "z2_gas2_tmbspg1"]
    assert found.usual_C.all()


def test_stages_may_list_one_knob_differently() -> None:
    found = space(
        STAGES,
        KnobChoice("blocks_per_unit", (2,), FREE, (1,)),
        KnobChoice("blocks_per_unit", (4, 8), FREE, (2,)),
    )
    assert names(found, usual=False) == [
        "z1_bpu2_gas2_tmbspg1",
        "z2_bpu4_gas2_tmbspg1",
        "z2_bpu8_gas2_tmbspg1",
    ]


def test_values_are_tried_in_the_order_given() -> None:
    found = space(KnobChoice("bucket_cap_mb", (100, 5, 50), FREE))
    assert names(found) == [
        "z0_bcm100_gas2_tmbspg1",
        "z0_bcm5_gas2_tmbspg1",
        "z0_bcm50_gas2_tmbspg1",
    ]


def test_true_and_1_are_different_values() -> None:
    found = space(KnobChoice("x", (True, 1), FREE))
    assert names(found) == ["z0_x-T_gas2_tmbspg1", "z0_x-1_gas2_tmbspg1"]


def test_too_many_combinations_are_refused_with_their_knobs() -> None:
    many = tuple(range(1, 101))
    with pytest.raises(ConfigError, match=r"lists of a, b make 10000 combinations for ZeRO stage"):
        space(KnobChoice("a", many, LISTED), KnobChoice("b", many, LISTED))
