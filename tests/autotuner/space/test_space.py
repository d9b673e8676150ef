from typing import Any

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

from ...rows import rows
from ..builders import as_candidate
from ..conftest import candidate, small_space

SETTINGS = AutotuningSettings()
NOTHING: dict[str, Any] = {}


def space(
    *choices: KnobChoice,
    on: str | Candidate = "dp=2 acc=8",
    rule: GlobalBatchRule | None = None,
    settings: AutotuningSettings = SETTINGS,
) -> SearchSpace:
    baseline = as_candidate(on)
    rule = rule or GlobalBatchRule(pinned=baseline.layout.global_batch)
    return build_space(baseline, choices, rule, settings)


def free(name: str, *values: Any, stages: tuple[int, ...] | None = None) -> KnobChoice:
    return KnobChoice(name, values, ChoiceKind.FREE, stages)


def list_of(name: str, *values: Any, stages: tuple[int, ...] | None = None) -> KnobChoice:
    return KnobChoice(name, values, ChoiceKind.LISTED, stages)


def least(*micro: KnobValue) -> KnobChoice:
    return KnobChoice("micro_batch", micro, ChoiceKind.MINIMUM)


def micros(*values: KnobValue) -> KnobChoice:
    return list_of("micro_batch", *values)


def found_rows(found: SearchSpace) -> list[Candidate]:
    return [found.table.row(i) for i in range(len(found.table))]


def layouts(found: SearchSpace) -> list[Layout]:
    return [one.layout for one in found_rows(found)]


def splits(found: SearchSpace) -> list[tuple[int, int]]:
    return [(one.micro_batch, one.accumulation) for one in layouts(found)]


def names(found: SearchSpace) -> list[str]:
    return [candidate_name(one) for one in found_rows(found)]


FREE_STAGES = free("zero_stage", 0, 1, 2, 3)
TENSOR = list_of("tensor_parallel", 1, 2, 4)
PIPELINE = list_of("pipeline_parallel", 1, 2)

stage_choices = st.sampled_from(
    (
        FREE_STAGES,
        list_of("zero_stage", 2, 3),
        KnobChoice("zero_stage", (1,), ChoiceKind.PINNED),
    )
)
micro_batch_choices = st.one_of(
    st.integers(1, 64).map(least),
    st.lists(st.integers(1, 64), min_size=1, max_size=4).map(lambda v: micros(*v)),
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


@given(baselines, stage_choices, micro_batch_choices, rules)
def test_candidates_obey_the_batch_rule_on_the_same_ranks_and_none_comes_twice(
    baseline: Candidate, stages: KnobChoice, sizes: KnobChoice, rule: GlobalBatchRule | None
) -> None:
    found = space(stages, sizes, on=baseline, rule=rule)
    batches = set(found.table.global_batch_C.tolist())
    if rule is None:
        assert batches <= {baseline.layout.global_batch}
    elif rule.maximum:
        assert all(batch <= rule.maximum for batch in batches)
    assert len({*names(found), candidate_name(baseline)}) == len(found.table) + 1
    assert {one.world_size for one in layouts(found)} <= {baseline.layout.world_size}


@given(st.integers(1, 40), st.integers(1, 6))
def test_a_pinned_batch_admits_every_divisor(each: int, ranks: int) -> None:
    expected = [(b, each // b) for b in range(2, each + 1) if each % b == 0]
    assert splits(space(least(1), on=f"dp={ranks} acc={each}")) == expected


def within(low: int | None, high: int) -> dict[str, Any]:
    return {
        "settings": AutotuningSettings(
            min_train_micro_batch_size_per_gpu=low or 1, max_train_micro_batch_size_per_gpu=high
        )
    }


UP_TO_26, ANY = {"rule": GlobalBatchRule(maximum=26)}, {"rule": GlobalBatchRule()}
BELOW_IT, EVEN = [(2, 6), (3, 4), (4, 1), (4, 3)], [(2, 2), (2, 4), (3, 4), (4, 1), (4, 4)]


@rows(
    "choices, on, given, expected",
    {
        "of any divisor": ([least(1)], "acc=6", NOTHING, [(2, 3), (3, 2), (6, 1)]),
        "within the settings": ([least(1)], "acc=8", within(2, 4), [(2, 4), (4, 2)]),
        "from the smallest by default": ([least()], "acc=8", NOTHING, [(2, 4), (4, 2), (8, 1)]),
        "below the user's too": ([least(4)], "micro=4 acc=2", NOTHING, [(1, 8), (2, 4), (8, 1)]),
        "listed divisors": ([micros(1, 4, 8, 3)], "acc=8", NOTHING, [(4, 2), (8, 1)]),
        "listed accumulation": (
            [list_of("accumulation", 2, 4), least(1)],
            *("acc=8", NOTHING, [(2, 4), (4, 2)]),
        ),
        "at a maximum's batches": ([micros(2, 4, 3)], "micro=2 acc=2", UP_TO_26, BELOW_IT),
        "at any batch": ([least(1)], "acc=4", ANY | within(None, 4), EVEN),
        "none without a choice": ([], "acc=8", NOTHING, []),
    },
)
def test_micro_batches_are_searched(
    choices: list[KnobChoice], on: str, given: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert splits(space(*choices, on=f"dp=2 {on}", **given)) == expected


def test_micro_batches_are_thinned_and_least_is_the_users() -> None:
    assert space(least(4), on="dp=2 micro=4 acc=2").least_micro_batch == 4
    assert space(least()).least_micro_batch == 1
    one = AutotuningSettings(num_tuning_micro_batch_sizes=1)
    found = micro_batches_to_try(2, (2,), GlobalBatchRule(), one)
    assert found == micro_batches_to_try(2, (2,), GlobalBatchRule(), SETTINGS)
    assert {1, 2, 4, 8, 256, 512, 1024} <= set(found)
    thinned = splits(space(least(1), rule=GlobalBatchRule(maximum=2 * 1024)))
    assert {micro for micro, _ in thinned if 512 < micro <= 1024} == {645, 813, 1024}
    assert max(splits(space(least(1), rule=GlobalBatchRule(maximum=2 * 777)))) == (777, 1)


@rows(
    "choices, on, expected",
    {
        "by stage and then by micro-batch": (
            [FREE_STAGES, least(1)],
            "dp=2 acc=2",
            ["z0_gas1_tmbspg2"]
            + [f"z{n}_{split}" for n in (1, 2, 3) for split in ("gas2_tmbspg1", "gas1_tmbspg2")],
        ),
        "with listed stages on one rank": (
            [list_of("zero_stage", 0, 2)],
            *("", ["z2_gas1_tmbspg1"]),
        ),
        "with further knobs": (
            [list_of("recompute", "none", "full"), least(1)],
            "dp=2 acc=2",
            ["z0_gas1_tmbspg2", "z0_acfull_gas2_tmbspg1", "z0_acfull_gas1_tmbspg2"],
        ),
        "with extras": (
            [list_of("reduce_bucket_size", 5, 7)],
            *("reduce_bucket_size=5", ["z0_rbs7_gas1_tmbspg1"]),
        ),
        "with the baseline's value of other knobs": (
            [least(1)],
            *("dp=2 acc=2 recompute=full", ["z0_acfull_gas1_tmbspg2"]),
        ),
    },
)
def test_candidates_stand_in_order(
    choices: list[KnobChoice], on: str, expected: list[str]
) -> None:
    assert names(space(*choices, on=on)) == expected


@rows(
    "choices, given, facts",
    {
        "micro-batches that do not divide": (
            [micros(1, 4, 3, 5)],
            NOTHING,
            ["3, 5 of your list are skipped", "16", "2 data-", "--allow-global-batch-change"],
        ),
        "a batch that leaves one": (
            [FREE_STAGES, least(1)],
            {"on": "dp=2"},
            ["only micro-batch 1", "global batch of 2", "--allow-global-batch-change"],
        ),
        "micro-batches beyond the maximum": (
            [micros(1, 64)],
            {"rule": GlobalBatchRule(maximum=32)},
            ["64 of your list is skipped", "max_train_batch_size 32"],
        ),
    },
)
def test_a_note_names(choices: list[KnobChoice], given: dict[str, Any], facts: list[str]) -> None:
    (note,) = space(*choices, **given).notes
    assert all(fact in note for fact in facts)


def test_a_fixed_micro_batch_needs_no_note_and_a_value_no_knob_has_is_refused() -> None:
    assert space(FREE_STAGES, micros(1)).notes == ()
    with pytest.raises(ConfigError, match="zero_stage is 5"):
        space(list_of("zero_stage", 5))
    assert len(small_space().table) == 15
    found = space(FREE_STAGES, least(1), on="acc=2")
    assert found.rejected == (("zero_needs_data_parallel", 6),)
    assert set(found.table["zero_stage"].tolist()) == {0}


@rows(
    "choices, on, rule, count",
    {
        "micro-batches that do not divide": ([micros(1, 4, 3)], "dp=2 acc=8", "global_batch", 1),
        "sequence parallelism without tensor ranks": (
            [TENSOR, list_of("sequence_parallel", False, True), micros(1)],
            *("dp=4", "sp_tp", 1),
        ),
        "fewer micro-batches than stages": (
            [PIPELINE, micros(1, 2, 4)],
            *("dp=2 acc=2", "stage_micro_batches", 1),
        ),
        "a split of another number of stages": (
            [list_of("pipeline_parallel", 2, 4), list_of("pipeline_split", (1, 3)), micros(1)],
            *("dp=4 acc=4", "split_parts", 1),
        ),
    },
)
def test_candidates_are_left_out_by_rule(
    choices: list[KnobChoice], on: str, rule: str, count: int
) -> None:
    assert dict(space(*choices, on=on).rejected)[rule] == count


def test_degrees_that_ranks_share_follow_from_each_other() -> None:
    found = layouts(space(TENSOR, micros(1), on="dp=4 acc=8"))
    degrees = [(one.tensor_parallel, one.data_parallel, one.accumulation) for one in found]
    assert degrees == [(4, 1, 32), (2, 2, 16)]
    odd = layouts(space(list_of("tensor_parallel", 1, 2, 3), least(1), on="dp=4"))
    assert [one.data_parallel for one in odd] == [2, 2]
    both = space(TENSOR, list_of("sequence_parallel", False, True), micros(1), on="dp=4")
    parallel = [one for one in layouts(both) if one.sequence_parallel]
    assert {one.tensor_parallel for one in parallel} == {2, 4}
    found = layouts(space(TENSOR, list_of("expert_parallel", 1, 4), micros(1), on="dp=4"))
    kept = {(one.tensor_parallel, one.expert_parallel) for one in found}
    assert (1, 4) in kept
    assert (2, 4) not in kept


@rows(
    "choice, on, searched, left_out",
    {
        "DDP's buckets on whole models": (
            free("bucket_cap_mb", 5, 25, stages=(0,)),
            "",
            "bcm",
            "",
        ),
        "shards over a part of the data ranks": (
            list_of("reshard_after_forward", 2, stages=(3,)),
            *("zero=3", "raf2", ""),
        ),
        "replicas of shards": (list_of("shard_ranks", True, 2, 4), "zero=3", "sr2", "sr4"),
    },
)
def test_knobs_are_searched_without_tensor_ranks(
    choice: KnobChoice, on: str, searched: str, left_out: str
) -> None:
    found = names(space(TENSOR, choice, micros(1), on=f"dp=4 {on}"))
    named = [name for name in found if searched in name]
    assert named
    assert not [name for name in named if "tp" in name]
    assert not left_out or not [name for name in found if left_out in name]


def test_pipelines_need_micro_batches_and_splits_their_stages() -> None:
    chunks, schedule = list_of("virtual_pipeline", 1, 2), free("pipeline_schedule", None, "gpipe")
    found = found_rows(space(PIPELINE, chunks, schedule, micros(1), on="dp=4 acc=4"))
    kinds = {(c.layout.pipeline_parallel, c.layout.virtual_pipeline, c.extras) for c in found}
    assert kinds == {(2, 1, ()), (2, 1, (("pipeline_schedule", "gpipe"),)), (2, 2, ())}
    sizes = layouts(space(PIPELINE, micros(1, 2, 4), on="dp=2 acc=2"))
    piped = [one for one in sizes if one.pipeline_parallel == 2]
    assert [(one.micro_batch, one.accumulation) for one in piped] == [(1, 4), (2, 2)]
    gpipe = KnobChoice("pipeline_schedule", ("gpipe",), ChoiceKind.PINNED)
    assert splits(space(PIPELINE, gpipe, micros(4), on="dp=2 acc=2")) == [(4, 1)]
    split = KnobChoice("pipeline_split", ((1, 3),), ChoiceKind.PINNED)
    stages = list_of("pipeline_parallel", 2, 4)
    uneven = layouts(space(stages, split, micros(1), on="dp=4 acc=4"))
    assert [one.pipeline_split for one in uneven] == [(1, 3)]


def test_uneven_splits_and_recomputed_layers_have_their_modes() -> None:
    uneven = list_of("micro_batch_split", None, (5, 3), (3, 1))
    found = names(space(TENSOR, uneven, micros(2, 4)))
    assert {name for name in found if "uneven" in name} == {
        "z0_uneven5.3_gas2_tmbspg4",
        "z0_uneven3.1_gas4_tmbspg2",
    }
    modes, layers = list_of("recompute", *Recompute), list_of("recompute_layers", 1, 2)
    found = names(space(modes, layers, micros(1)))
    kinds = {name.partition("_ac")[2].partition("_gas")[0] for name in found}
    assert kinds == {"sel", "full_acl1", "full_acl2"}
