import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
    candidate_name,
)
from autoconf_launch.autotuner.space.space import micro_batches_to_try
from autoconf_launch.core import Candidate, ConfigError, KnobValue, Layout, Recompute

from ..conftest import candidate, small_space

SETTINGS = AutotuningSettings()
FREE_STAGES = KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.FREE)
BASELINE = candidate(accumulation=8)


def space(
    *choices: KnobChoice,
    baseline: Candidate = BASELINE,
    rule: GlobalBatchRule | None = None,
    settings: AutotuningSettings = SETTINGS,
) -> SearchSpace:
    rule = rule or GlobalBatchRule(pinned=baseline.layout.global_batch)
    return build_space(baseline, choices, rule, settings)


def micro_batches(*values: KnobValue, how: ChoiceKind = ChoiceKind.LISTED) -> KnobChoice:
    return KnobChoice("micro_batch", values, how)


def splits(found: SearchSpace) -> list[tuple[int, int]]:
    table = found.table
    return list(zip(table["micro_batch"].tolist(), table["accumulation"].tolist(), strict=True))


def names(found: SearchSpace) -> list[str]:
    return [candidate_name(found.table.row(i)) for i in range(len(found.table))]


FROM_ONE = micro_batches(1, how=ChoiceKind.MINIMUM)

choices_of_stages = st.sampled_from(
    (
        FREE_STAGES,
        KnobChoice("zero_stage", (2, 3), ChoiceKind.LISTED),
        KnobChoice("zero_stage", (1,), ChoiceKind.PINNED),
    )
)
choices_of_micro_batches = st.one_of(
    st.integers(1, 64).map(lambda least: micro_batches(least, how=ChoiceKind.MINIMUM)),
    st.lists(st.integers(1, 64), min_size=1, max_size=4).map(lambda v: micro_batches(*v)),
)
baselines = st.builds(
    candidate,
    stage=st.integers(0, 3),
    micro=st.integers(1, 12),
    accumulation=st.integers(1, 12),
    ranks=st.integers(1, 6),
)
rules = st.one_of(
    st.just(None),
    st.integers(1, 300).map(lambda most: GlobalBatchRule(maximum=most)),
    st.just(GlobalBatchRule()),
)


@given(baselines, choices_of_stages, choices_of_micro_batches, rules)
def test_every_candidate_obeys_the_batch_rule(
    baseline: Candidate, stages: KnobChoice, sizes: KnobChoice, rule: GlobalBatchRule | None
) -> None:
    found = space(stages, sizes, baseline=baseline, rule=rule)
    batches = set(found.table.global_batch_C.tolist())
    if rule is None:
        assert batches <= {baseline.layout.global_batch}
    elif rule.maximum:
        assert all(batch <= rule.maximum for batch in batches)


@given(baselines, choices_of_stages, choices_of_micro_batches, rules)
def test_the_baseline_is_no_candidate_and_none_comes_twice(
    baseline: Candidate, stages: KnobChoice, sizes: KnobChoice, rule: GlobalBatchRule | None
) -> None:
    found = names(space(stages, sizes, baseline=baseline, rule=rule))
    assert len({*found, candidate_name(baseline)}) == len(found) + 1


@given(baselines, choices_of_stages, choices_of_micro_batches, rules)
def test_every_candidate_runs_on_the_same_ranks(
    baseline: Candidate, stages: KnobChoice, sizes: KnobChoice, rule: GlobalBatchRule | None
) -> None:
    found = space(stages, sizes, baseline=baseline, rule=rule).table
    worlds = {found.row(i).layout.world_size for i in range(len(found))}
    assert worlds <= {baseline.layout.world_size}


@given(st.integers(1, 40), st.integers(1, 6))
def test_a_pinned_batch_admits_every_divisor(each: int, ranks: int) -> None:
    found = space(FROM_ONE, baseline=candidate(accumulation=each, ranks=ranks))
    expected = [(b, each // b) for b in range(2, each + 1) if each % b == 0]
    assert splits(found) == expected


def test_micro_batches_that_are_no_power_of_two_are_searched() -> None:
    assert splits(space(FROM_ONE, baseline=candidate(accumulation=6))) == [(2, 3), (3, 2), (6, 1)]


def test_the_settings_bound_the_micro_batches() -> None:
    bounds = AutotuningSettings(
        min_train_micro_batch_size_per_gpu=2, max_train_micro_batch_size_per_gpu=4
    )
    assert splits(space(FROM_ONE, settings=bounds)) == [(2, 4), (4, 2)]


def test_candidates_go_by_stage_and_then_by_micro_batch() -> None:
    found = space(FREE_STAGES, FROM_ONE, baseline=candidate(accumulation=2))
    assert names(found) == [
        "z0_gas1_tmbspg2",
        "z1_gas2_tmbspg1",
        "z1_gas1_tmbspg2",
        "z2_gas2_tmbspg1",
        "z2_gas1_tmbspg2",
        "z3_gas2_tmbspg1",
        "z3_gas1_tmbspg2",
    ]


def test_below_the_users_micro_batch_is_marked_for_when_that_does_not_fit() -> None:
    baseline = candidate(micro=4, accumulation=2)
    found = space(micro_batches(4, how=ChoiceKind.MINIMUM), baseline=baseline)
    assert (found.least_micro_batch, splits(found)) == (4, [(1, 8), (2, 4), (8, 1)])


def test_listed_micro_batches_are_taken_as_they_are() -> None:
    found = space(micro_batches(1, 4, 8, 3))
    assert splits(found) == [(4, 2), (8, 1)]


def test_listed_micro_batches_that_do_not_divide_are_counted_under_their_rule() -> None:
    assert space(micro_batches(1, 4, 3)).rejected == (("global_batch", 1),)


def test_listed_micro_batches_that_do_not_divide_are_said_with_the_flag() -> None:
    (note,) = space(micro_batches(1, 4, 3, 5)).notes
    assert note == (
        "Micro-batch 3, 5 of your list are skipped: no accumulation gives a global batch of 16 "
        "with them on 2 data-parallel ranks; --allow-global-batch-change searches other batches."
    )


def test_a_batch_that_leaves_one_micro_batch_is_said_with_the_flag() -> None:
    (note,) = space(FREE_STAGES, FROM_ONE, baseline=candidate()).notes
    assert note == (
        "A global batch of 2 on 2 data-parallel ranks leaves only micro-batch 1; "
        "--allow-global-batch-change searches others."
    )


def test_a_micro_batch_that_the_user_fixed_needs_no_note() -> None:
    assert space(FREE_STAGES, micro_batches(1)).notes == ()


def test_an_empty_minimum_searches_from_the_smallest() -> None:
    found = space(micro_batches(how=ChoiceKind.MINIMUM))
    assert (found.least_micro_batch, splits(found)) == (1, [(2, 4), (4, 2), (8, 1)])


def test_the_count_of_micro_batches_to_tune_leaves_the_curve_as_it_is() -> None:
    one = AutotuningSettings(num_tuning_micro_batch_sizes=1)
    found = micro_batches_to_try(2, (2,), GlobalBatchRule(), one)
    assert found == micro_batches_to_try(2, (2,), GlobalBatchRule(), SETTINGS)
    assert {1, 2, 4, 8, 256, 512, 1024} <= set(found)


def test_without_any_choice_nothing_is_searched() -> None:
    assert len(space().table) == 0


def test_with_a_maximum_todays_batch_and_the_nearest_below_it_are_searched() -> None:
    baseline = candidate(micro=2, accumulation=2)
    found = space(micro_batches(2, 4, 3), baseline=baseline, rule=GlobalBatchRule(maximum=26))
    assert splits(found) == [(2, 6), (3, 4), (4, 1), (4, 3)]


def test_micro_batches_beyond_the_maximum_are_said() -> None:
    (note,) = space(micro_batches(1, 64), rule=GlobalBatchRule(maximum=32)).notes
    assert "64 of your list is skipped: over max_train_batch_size 32" in note


def test_a_long_range_is_thinned_to_so_many_for_each_doubling() -> None:
    rule = GlobalBatchRule(maximum=2 * 1024)
    found = space(FROM_ONE, rule=rule)
    upper = {micro for micro, _ in splits(found) if 512 < micro <= 1024}
    assert upper == {645, 813, 1024}


def test_thinning_keeps_the_largest_micro_batch() -> None:
    found = space(FROM_ONE, rule=GlobalBatchRule(maximum=2 * 777))
    assert max(splits(found)) == (777, 1)


def test_without_a_limit_todays_accumulation_and_todays_batch_are_searched() -> None:
    bounds = AutotuningSettings(max_train_micro_batch_size_per_gpu=4)
    baseline = candidate(accumulation=4)
    found = space(FROM_ONE, baseline=baseline, rule=GlobalBatchRule(), settings=bounds)
    assert splits(found) == [(2, 2), (2, 4), (3, 4), (4, 1), (4, 4)]


def test_free_stages_on_one_rank_are_left_out_by_rule() -> None:
    found = space(FREE_STAGES, FROM_ONE, baseline=candidate(accumulation=2, ranks=1))
    assert found.rejected == (("zero_needs_data_parallel", 6),)
    assert set(found.table["zero_stage"].tolist()) == {0}


def test_listed_stages_on_one_rank_stay() -> None:
    listed = KnobChoice("zero_stage", (0, 2), ChoiceKind.LISTED)
    found = space(listed, baseline=candidate(ranks=1))
    assert names(found) == ["z2_gas1_tmbspg1"]


def test_further_knobs_cross_with_the_rest() -> None:
    listed = KnobChoice("recompute", ("none", "full"), ChoiceKind.LISTED)
    assert names(space(listed, FROM_ONE, baseline=candidate(accumulation=2))) == [
        "z0_gas1_tmbspg2",
        "z0_acfull_gas2_tmbspg1",
        "z0_acfull_gas1_tmbspg2",
    ]


def test_extras_cross_with_the_rest() -> None:
    listed = KnobChoice("reduce_bucket_size", (5, 7), ChoiceKind.LISTED)
    baseline = Candidate(layout=Layout(), extras=(("reduce_bucket_size", 5),))
    assert names(space(listed, baseline=baseline)) == ["z0_rbs7_gas1_tmbspg1"]


def test_degrees_that_do_not_divide_the_ranks_are_left_out() -> None:
    listed = KnobChoice("tensor_parallel", (1, 2, 3), ChoiceKind.LISTED)
    found = space(listed, FROM_ONE, baseline=candidate(ranks=4))
    assert [found.table.row(i).layout.data_parallel for i in range(len(found.table))] == [2, 2]


def test_listed_accumulation_is_taken_as_it_is() -> None:
    listed = KnobChoice("accumulation", (2, 4), ChoiceKind.LISTED)
    found = space(listed, FROM_ONE)
    assert splits(found) == [(2, 4), (4, 2)]


def test_a_value_that_a_knob_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="zero_stage is 5"):
        space(KnobChoice("zero_stage", (5,), ChoiceKind.LISTED))


def test_a_value_of_the_baseline_stays_for_knobs_without_a_choice() -> None:
    baseline = candidate(accumulation=2, recompute=Recompute.FULL)
    found = space(FROM_ONE, baseline=baseline)
    assert names(found) == ["z0_acfull_gas1_tmbspg2"]


def test_the_fixture_of_the_other_tests_has_four_stages_of_four_micro_batches() -> None:
    assert len(small_space().table) == 15


TENSOR = KnobChoice("tensor_parallel", (1, 2, 4), ChoiceKind.LISTED)
SEQUENCE = KnobChoice("sequence_parallel", (False, True), ChoiceKind.LISTED)


def test_the_data_degree_and_the_accumulation_follow_from_a_tensor_degree() -> None:
    found = space(TENSOR, micro_batches(1), baseline=candidate(ranks=4, accumulation=8))
    rows = [found.table.row(i).layout for i in range(len(found.table))]
    assert [(r.tensor_parallel, r.data_parallel, r.accumulation) for r in rows] == [
        (4, 1, 32),
        (2, 2, 16),
    ]


def test_sequence_parallelism_is_searched_on_tensor_ranks_alone() -> None:
    found = space(TENSOR, SEQUENCE, micro_batches(1), baseline=candidate(ranks=4))
    table = found.table
    sequence, tensor = table["sequence_parallel"], table["tensor_parallel"]
    assert set(tensor[sequence == 1].tolist()) == {2, 4}
    assert dict(found.rejected)["sp_tp"] == 1


def test_knobs_of_ddp_are_searched_on_whole_models_alone() -> None:
    buckets = KnobChoice("bucket_cap_mb", (5, 25), ChoiceKind.FREE, stages=(0,))
    found = space(TENSOR, buckets, micro_batches(1), baseline=candidate(ranks=4))
    named = [name for name in names(found) if "bcm" in name]
    assert named
    assert not [name for name in named if "tp" in name]


def test_weights_are_resharded_over_a_part_of_the_data_parallel_ranks() -> None:
    resharded = KnobChoice("reshard_after_forward", (2,), ChoiceKind.LISTED, stages=(3,))
    baseline = candidate(stage=3, ranks=4)
    found = names(space(TENSOR, resharded, micro_batches(1), baseline=baseline))
    assert [name for name in found if "raf2" in name]
    assert not [name for name in found if "tp" in name and "raf2" in name]


PIPELINE = KnobChoice("pipeline_parallel", (1, 2), ChoiceKind.LISTED)


def rows(found: SearchSpace) -> list[Candidate]:
    return [found.table.row(i) for i in range(len(found.table))]


def test_knobs_of_a_pipeline_are_searched_on_several_stages_alone() -> None:
    chunks = KnobChoice("virtual_pipeline", (1, 2), ChoiceKind.LISTED)
    schedule = KnobChoice("pipeline_schedule", (None, "gpipe"), ChoiceKind.FREE)
    baseline = candidate(ranks=4, accumulation=4)
    found = rows(space(PIPELINE, chunks, schedule, micro_batches(1), baseline=baseline))
    kinds = {(c.layout.pipeline_parallel, c.layout.virtual_pipeline, c.extras) for c in found}
    assert kinds == {(2, 1, ()), (2, 1, (("pipeline_schedule", "gpipe"),)), (2, 2, ())}


def test_a_step_has_a_micro_batch_for_each_stage() -> None:
    sizes = micro_batches(1, 2, 4)
    found = space(PIPELINE, sizes, baseline=candidate(ranks=2, accumulation=2, micro=1))
    piped = [c.layout for c in rows(found) if c.layout.pipeline_parallel == 2]
    assert [(one.micro_batch, one.accumulation) for one in piped] == [(1, 4), (2, 2)]
    assert dict(found.rejected)["stage_micro_batches"] == 1


def test_gpipe_may_have_fewer_micro_batches_than_stages() -> None:
    schedule = KnobChoice("pipeline_schedule", ("gpipe",), ChoiceKind.PINNED)
    baseline = candidate(ranks=2, accumulation=2, micro=1)
    found = rows(space(PIPELINE, schedule, micro_batches(4), baseline=baseline))
    assert [one.layout.accumulation for one in found] == [1]


def test_a_split_counts_where_it_has_a_part_for_each_stage() -> None:
    stages = KnobChoice("pipeline_parallel", (2, 4), ChoiceKind.LISTED)
    split = KnobChoice("pipeline_split", ((1, 3),), ChoiceKind.PINNED)
    baseline = candidate(ranks=4, accumulation=4)
    found = space(stages, split, micro_batches(1), baseline=baseline)
    assert [one.layout.pipeline_split for one in rows(found)] == [(1, 3)]
    assert dict(found.rejected)["split_parts"] == 1


def test_expert_ranks_are_data_parallel_ranks() -> None:
    experts = KnobChoice("expert_parallel", (1, 4), ChoiceKind.LISTED)
    found = space(TENSOR, experts, micro_batches(1), baseline=candidate(ranks=4))
    kept = [(c.layout.tensor_parallel, c.layout.expert_parallel) for c in rows(found)]
    assert (1, 4) in kept
    assert (2, 4) not in kept


def test_shards_are_over_a_part_of_the_data_parallel_ranks() -> None:
    shards = KnobChoice("shard_ranks", (True, 2, 4), ChoiceKind.LISTED)
    found = names(space(TENSOR, shards, micro_batches(1), baseline=candidate(stage=3, ranks=4)))
    assert [name for name in found if "sr2" in name]
    assert not [name for name in found if "sr4" in name or ("tp" in name and "sr2" in name)]


def test_a_split_is_tried_with_the_micro_batch_and_the_ranks_that_it_is_of() -> None:
    splits = KnobChoice("micro_batch_split", (None, (5, 3), (3, 1)), ChoiceKind.LISTED)
    baseline = candidate(ranks=2, accumulation=8)
    found = names(space(TENSOR, splits, micro_batches(2, 4), baseline=baseline))
    assert {name for name in found if "uneven" in name} == {
        "z0_uneven5.3_gas2_tmbspg4",
        "z0_uneven3.1_gas4_tmbspg2",
    }


def test_listed_layers_are_of_full_recomputation_alone() -> None:
    modes = KnobChoice("recompute", tuple(Recompute), ChoiceKind.LISTED)
    layers = KnobChoice("recompute_layers", (1, 2), ChoiceKind.LISTED)
    found = names(space(modes, layers, micro_batches(1)))
    assert {name.partition("_ac")[2].partition("_gas")[0] for name in found} == {
        "sel",
        "full_acl1",
        "full_acl2",
    }
