from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import (
    ABSENT,
    CandidateTable,
    concat,
    space_name,
    space_numbers,
)
from autoconf_launch.core import Candidate, KnobValue, Layout, Offload, Recompute

from ..builders import as_candidate, prediction_table, table

DEGREES = st.integers(1, 8)
LAYOUTS = st.builds(
    Layout,
    data_parallel=DEGREES,
    tensor_parallel=DEGREES,
    zero_stage=st.integers(0, 3),
    micro_batch=st.integers(1, 1024),
    accumulation=DEGREES,
    recompute=st.sampled_from(Recompute),
    sequence_parallel=st.booleans(),
    offload=st.sampled_from(Offload),
    placement=st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple),
    pipeline_split=st.none() | st.just((3, 4)),
)
VALUES: st.SearchStrategy[KnobValue] = st.sampled_from((None, False, 0, 1, True, 1.5, "x", 10**8))
EXTRAS = st.dictionaries(st.sampled_from(("overlap_comm", "a", "b")), VALUES)
CANDIDATES = st.builds(
    lambda layout, extras: Candidate(layout=layout, extras=tuple(sorted(extras.items()))),
    LAYOUTS,
    EXTRAS,
)
TABLES = st.lists(CANDIDATES, max_size=6)


def rows(table: CandidateTable) -> list[Candidate]:
    return [table.row(i) for i in range(len(table))]


def canonical(candidates: list[Candidate]) -> list[tuple[Layout, dict[str, KnobValue]]]:
    return [(c.layout, dict(c.extras)) for c in candidates]


@given(TABLES)
def test_rows_are_the_candidates_that_went_in_with_their_types_and_are_found_again(
    candidates: list[Candidate],
) -> None:
    made = table(*candidates)
    assert canonical(rows(made)) == canonical(candidates)
    assert repr([c.layout for c in rows(made)]) == repr([c.layout for c in candidates])
    assert all(i in made.find(made.row(i)) for i in range(len(made)))
    assert made.global_batch_C.tolist() == [c.layout.global_batch for c in candidates]


@given(TABLES, TABLES)
def test_concat_is_all_rows_in_order(one: list[Candidate], two: list[Candidate]) -> None:
    joined = concat([table(*part) for part in (one, two)])
    assert canonical(rows(joined)) == canonical(one + two)


@given(TABLES, st.data())
def test_take_by_numbers_and_by_mask_agree(
    candidates: list[Candidate], data: st.DataObject
) -> None:
    made = table(*candidates)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made))))
    mask = mask.astype(np.bool_)
    assert rows(made.take(mask)) == rows(made.take(np.flatnonzero(mask)))


@given(TABLES)
def test_distinct_keeps_the_first_of_equals(candidates: list[Candidate]) -> None:
    made = table(*candidates, *candidates)
    found = rows(made.distinct())
    assert [repr(c) for c in found] == list(dict.fromkeys(repr(c) for c in rows(made)))


def test_crossing_gives_each_row_each_value_of_a_knob_or_a_new_extra() -> None:
    crossed = table("micro=1", "micro=2").cross("recompute", (Recompute.NONE, Recompute.FULL))
    expected = [f"micro={m} recompute={x}" for m in (1, 2) for x in ("none", "full")]
    assert rows(crossed) == rows(table(*expected))
    assert [c.extras for c in rows(table("").cross("a", (5, None)))] == [
        (("a", 5),),
        (("a", None),),
    ]


def test_numbers_of_an_extra_that_only_some_have() -> None:
    assert table("", "a=1")["a"].tolist() == [ABSENT, 0]
    some = table("blocks_per_unit=4", "gradient_as_bucket_view=false")
    assert some.numbers("blocks_per_unit", 1.0).tolist() == [4.0, 1.0]
    assert some.numbers("gradient_as_bucket_view", 1.0).tolist() == [1.0, 0.0]
    assert some.numbers("reshard_root", 1.0).tolist() == [1.0, 1.0]


def test_rows_sort_by_several_knobs() -> None:
    ordered = table("zero=1 micro=1", "micro=2", "zero=1 micro=0", "micro=1").in_order(
        ("zero_stage", "micro_batch")
    )
    assert ordered["zero_stage"].tolist() == [0, 0, 1, 1]
    assert ordered["micro_batch"].tolist() == [1, 2, 0, 1]


def test_matching_may_leave_knobs_aside() -> None:
    found = table("micro=1", "micro=2").matches(as_candidate("micro=7"), but=("micro_batch",))
    assert found.tolist() == [True, True]


def test_a_prediction_has_what_is_known_and_follows_its_row() -> None:
    known = prediction_table([np.nan, 0.5], [10.0, np.nan], band=0.3)
    rows = [known.row(i) for i in range(2)]
    told = [(row.peak_bytes, row.step_s, row.band) for row in rows]
    assert told == [(10, None, None), (None, 0.5, 0.3)]
    assert known.take([1]).row(0) == rows[1]


@pytest.mark.parametrize(
    ("degrees", "name"),
    [
        ({"zero_stage": 3}, "z3"),
        ({"zero_stage": 3, "tensor_parallel": 2}, "tensor"),
        ({"pipeline_parallel": 2}, "pipeline"),
        ({"pipeline_parallel": 2, "tensor_parallel": 2}, "3d"),
        ({"expert_parallel": 2, "pipeline_parallel": 2}, "expert"),
        ({"context_parallel": 2, "expert_parallel": 2}, "context"),
    ],
)
def test_a_layout_belongs_to_the_family_that_stands_last_in_a_staged_search(
    degrees: dict[str, Any], name: str
) -> None:
    assert space_name(Layout(**degrees)) == name


def test_rows_have_the_numbers_of_a_staged_search() -> None:
    layouts = (Layout(zero_stage=2), Layout(tensor_parallel=2), Layout(context_parallel=2))
    table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
    assert space_numbers(table).tolist() == [2, 4, 8]
