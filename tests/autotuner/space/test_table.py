import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import ABSENT, CandidateTable, PredictionTable, concat
from autoconf_launch.core import Candidate, KnobValue, Layout, Offload, Recompute

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
def test_rows_are_the_candidates_that_went_in(candidates: list[Candidate]) -> None:
    table = CandidateTable.from_candidates(candidates)
    assert canonical(rows(table)) == canonical(candidates)


@given(TABLES)
def test_values_come_back_with_their_types(candidates: list[Candidate]) -> None:
    table = CandidateTable.from_candidates(candidates)
    assert repr([c.layout for c in rows(table)]) == repr([c.layout for c in candidates])


@given(TABLES, TABLES)
def test_concat_is_all_rows_in_order(one: list[Candidate], two: list[Candidate]) -> None:
    joined = concat([CandidateTable.from_candidates(part) for part in (one, two)])
    assert canonical(rows(joined)) == canonical(one + two)


@given(TABLES, st.data())
def test_take_by_numbers_and_by_mask_agree(
    candidates: list[Candidate], data: st.DataObject
) -> None:
    table = CandidateTable.from_candidates(candidates)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))))
    mask = mask.astype(np.bool_)
    assert rows(table.take(mask)) == rows(table.take(np.flatnonzero(mask)))


@given(TABLES)
def test_every_candidate_is_found_where_it_is(candidates: list[Candidate]) -> None:
    table = CandidateTable.from_candidates(candidates)
    for i in range(len(table)):
        assert i in table.find(table.row(i))


@given(TABLES)
def test_distinct_keeps_the_first_of_equals(candidates: list[Candidate]) -> None:
    table = CandidateTable.from_candidates(candidates + candidates)
    found = rows(table.distinct())
    assert [repr(c) for c in found] == list(dict.fromkeys(repr(c) for c in rows(table)))


@given(TABLES)
def test_the_global_batch_column_is_that_of_each_layout(candidates: list[Candidate]) -> None:
    table = CandidateTable.from_candidates(candidates)
    assert table.global_batch_C.tolist() == [c.layout.global_batch for c in candidates]


def test_crossing_gives_each_row_each_value() -> None:
    table = CandidateTable.from_candidates(
        [Candidate(layout=Layout(micro_batch=m)) for m in (1, 2)]
    )
    crossed = table.cross("recompute", (Recompute.NONE, Recompute.FULL))
    assert [(c.layout.micro_batch, c.layout.recompute.value) for c in rows(crossed)] == [
        (1, "none"),
        (1, "full"),
        (2, "none"),
        (2, "full"),
    ]


def test_crossing_with_a_new_extra_adds_it() -> None:
    table = CandidateTable.from_candidates([Candidate(layout=Layout())])
    assert [c.extras for c in rows(table.cross("a", (5, None)))] == [(("a", 5),), (("a", None),)]


def test_an_extra_that_only_some_have_is_absent_elsewhere() -> None:
    table = CandidateTable.from_candidates(
        [Candidate(layout=Layout()), Candidate(layout=Layout(), extras=(("a", 1),))]
    )
    assert table["a"].tolist() == [ABSENT, 0]


def test_rows_sort_by_several_knobs() -> None:
    layouts = [Layout(zero_stage=z, micro_batch=m) for z, m in ((1, 1), (0, 2), (1, 0), (0, 1))]
    table = CandidateTable.from_candidates([Candidate(layout=x) for x in layouts])
    ordered = table.in_order(("zero_stage", "micro_batch"))
    assert list(zip(ordered["zero_stage"], ordered["micro_batch"], strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_matching_may_leave_knobs_aside() -> None:
    table = CandidateTable.from_candidates(
        [Candidate(layout=Layout(micro_batch=m)) for m in (1, 2)]
    )
    found = table.matches(Candidate(layout=Layout(micro_batch=7)), but=("micro_batch",))
    assert found.tolist() == [True, True]


@pytest.fixture
def predictions() -> PredictionTable:
    return PredictionTable(
        peak_bytes_C=np.array([10.0, np.nan]),
        step_s_C=np.array([np.nan, 0.5]),
        band=0.3,
        how="by hand",
    )


def test_what_a_prediction_cannot_say_is_none(predictions: PredictionTable) -> None:
    assert [predictions.row(i).peak_bytes for i in range(2)] == [10, None]


def test_a_band_goes_with_the_seconds_that_it_is_of(predictions: PredictionTable) -> None:
    assert [(predictions.row(i).step_s, predictions.row(i).band) for i in range(2)] == [
        (None, None),
        (0.5, 0.3),
    ]


def test_predictions_follow_the_rows_that_are_taken(predictions: PredictionTable) -> None:
    assert predictions.take([1]).row(0) == predictions.row(1)


def test_numbers_of_an_extra_fill_up_what_is_left_out() -> None:
    table = CandidateTable.from_candidates(
        [
            Candidate(layout=Layout(), extras=(("blocks_per_unit", 4),)),
            Candidate(layout=Layout(), extras=(("gradient_as_bucket_view", False),)),
        ]
    )
    assert table.numbers("blocks_per_unit", 1.0).tolist() == [4.0, 1.0]
    assert table.numbers("gradient_as_bucket_view", 1.0).tolist() == [1.0, 0.0]
    assert table.numbers("reshard_root", 1.0).tolist() == [1.0, 1.0]
