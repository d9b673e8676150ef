import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import (
    BlockSpec,
    DecodeError,
    Failure,
    FailureKind,
    GemmShape,
    Grade,
    Layout,
    ModelSpec,
    Offload,
    Recompute,
    decode,
    encode,
)

LAYOUTS = st.builds(
    Layout,
    data_parallel=st.integers(1, 8),
    micro_batch=st.integers(1, 99),
    recompute=st.sampled_from(Recompute),
    offload=st.sampled_from(Offload),
    sequence_parallel=st.booleans(),
    pipeline_split=st.none() | st.lists(st.integers(1, 9), max_size=3).map(tuple),
)


@given(LAYOUTS)
def test_a_layout_survives_the_way_through_json(layout: Layout) -> None:
    assert decode(Layout, json.loads(json.dumps(encode(layout)))) == layout


def test_nested_records_infinite_numbers_and_odd_bytes_survive_json() -> None:
    block = BlockSpec(name="block", count=3, flops=1.5, gemm_shapes=(GemmShape(m=1, n=2, k=3),))
    spec = ModelSpec(grade=Grade.TRACED, blocks=(block,), notes=("why",))
    assert decode(ModelSpec, json.loads(json.dumps(encode(spec)))) == spec
    endless = BlockSpec(name="b", flops=math.inf)
    assert decode(BlockSpec, json.loads(json.dumps(encode(endless)))).flops == math.inf
    value = {"kind": "nan", "detail": "loss", "color": "red"}
    assert decode(Failure, value) == Failure(kind=FailureKind.NAN, detail="loss")
    failure = Failure(
        kind=FailureKind.CRASHED, detail="bad \udc80 é", log_tail=("one \udcff", "two")
    )
    assert (failure.detail, failure.log_tail) == ("bad \\udc80 é", ("one \\udcff", "two"))


@pytest.mark.parametrize(
    "value", [None, [], {"kind": "nan"}, {"kind": "no such kind", "detail": ""}, {"kind": 3}]
)
def test_a_value_of_another_shape_is_refused_whole(value: object) -> None:
    with pytest.raises(DecodeError):
        decode(Failure, value)
