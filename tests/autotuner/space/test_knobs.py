import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import KNOBS, candidate_name, extra_order, parse_value
from autoconf_launch.core import (
    EXTRAS,
    RUNTIME_KNOBS,
    Candidate,
    ConfigError,
    KnobValue,
    Layout,
    Offload,
    Recompute,
)

from ..builders import layout_of

VALUES: st.SearchStrategy[KnobValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
NAMES = st.sampled_from(("reduce_bucket_size", "overlap_comm", "a", "a_b", "rbs5", "x-1", "gas1"))


def name_it(*extras: tuple[str, KnobValue], **layout: int) -> str:
    return candidate_name(Candidate(layout=Layout(**layout), extras=extras))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (layout_of("zero=1 micro=3"), "z1_gas1_tmbspg3"),
        (layout_of("zero=1 micro=3 dp=8"), "z1_gas1_tmbspg3"),
        (
            layout_of("zero=3 tp=2 pp=2 acc=4 recompute=selective"),
            "z3_tp2_pp2_acsel_gas4_tmbspg1",
        ),
        (Layout(recompute=Recompute.FULL), "z0_acfull_gas1_tmbspg1"),
        (Layout(offload=Offload.OPTIMIZER), "z0_offopt_gas1_tmbspg1"),
        (Layout(sequence_parallel=True), "z0_spT_gas1_tmbspg1"),
        (Layout(pipeline_split=(3, 4)), "z0_split3.4_gas1_tmbspg1"),
    ],
)
def test_a_name_lists_stage_further_knobs_and_batch_split(layout: Layout, name: str) -> None:
    assert candidate_name(Candidate(layout=layout)) == name


def test_extras_in_names_are_short_and_never_taken_for_others() -> None:
    name = name_it(("reduce_bucket_size", 50_000_000), zero_stage=1, micro_batch=11)
    assert name == "z1_rbs5.0e+07_gas1_tmbspg11"
    assert name_it(("reduce_bucket_size", 50_000_001)) == "z0_rbs50000001_gas1_tmbspg1"
    assert name_it(("overlap_comm", True)) == "z0_ocT_gas1_tmbspg1"
    assert name_it(("my_flag", 4)) == "z0_my.flag-4_gas1_tmbspg1"
    a, b = ("overlap_comm", True), ("reduce_bucket_size", 5)
    assert name_it(a, b) == name_it(b, a)


def test_knobs_of_names_are_those_of_layouts_and_our_runtime() -> None:
    tags = [*(knob.tag for knob in KNOBS), *(knob.tag for knob in EXTRAS)]
    assert len(set(tags)) == len(tags)
    values = ("T", "F", "N", "1", "%2D", "cpu", "none", "nvme", "opt", "par", "sel", "full")
    assert len({tag + value for tag in tags for value in values}) == len(tags) * len(values)
    assert sorted(RUNTIME_KNOBS, key=extra_order) == list(RUNTIME_KNOBS)
    assert {knob.name for knob in KNOBS} == set(Layout.__dataclass_fields__)
    shown = {k.name: k.default for k in KNOBS if k.name not in ("zero_stage",)}
    assert {name: getattr(Layout(), name) for name in shown} == shown


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=2, max_size=2))
def test_different_extras_have_different_names(pair: list[dict[str, KnobValue]]) -> None:
    one, two = (
        Candidate(layout=Layout(), extras=tuple(sorted(extras.items()))) for extras in pair
    )
    assert one == two or candidate_name(one) != candidate_name(two)


@given(name=st.text(min_size=1, max_size=6), value=VALUES)
def test_names_are_file_names(name: str, value: KnobValue) -> None:
    made = name_it((name, value))
    assert not set(made) & set("/\\ \0\n")


def test_every_layout_of_a_space_has_a_name_of_its_own() -> None:
    layouts = [
        Layout(
            zero_stage=stage,
            micro_batch=micro,
            accumulation=accumulation,
            recompute=recompute,
            sequence_parallel=sequence,
            pipeline_split=split,
        )
        for stage, micro, accumulation, recompute, sequence, split in itertools.product(
            range(4), (1, 11), (1, 11), Recompute, (False, True), (None, (1, 11), (11, 1), (11,))
        )
    ]
    assert len({candidate_name(Candidate(layout=x)) for x in layouts}) == len(layouts)


@pytest.mark.parametrize(
    ("knob", "given", "value"),
    [("zero_stage", 2, 2), ("recompute", "full", Recompute.FULL), ("micro_batch", 3, 3)],
)
def test_values_of_a_document_become_those_of_the_knob(
    knob: str, given: object, value: object
) -> None:
    assert parse_value(knob, given) is value


@pytest.mark.parametrize(
    ("knob", "given"),
    [
        ("zero_stage", 4),
        ("zero_stage", True),
        ("recompute", "ful"),
        ("micro_batch", 0),
        ("micro_batch", "auto"),
        ("sequence_parallel", 1),
    ],
)
def test_values_that_a_knob_cannot_have_are_refused_by_name(knob: str, given: object) -> None:
    with pytest.raises(ConfigError, match=knob):
        parse_value(knob, given)
