import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import (
    Conditions,
    FailedTrial,
    GpuState,
    Measurement,
    Prediction,
    Record,
    Trial,
    Turn,
    decode_record,
    encode_record,
)
from autoconf_launch.core import (
    AppliedStrategy,
    Candidate,
    DecodeError,
    Failure,
    FailureKind,
    KnobValue,
    Layout,
    MemoryUse,
    Recompute,
)

from ...rows import some

SECONDS = st.floats(0, 1e6)
COUNTS = st.integers(0, 2**60)
EXTRA: st.SearchStrategy[KnobValue] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
) | st.text(max_size=3)
TRIALS = st.builds(
    Trial,
    number=st.integers(0, 99),
    name=st.text(max_size=8),
    candidate=st.builds(
        Candidate,
        layout=st.builds(
            Layout,
            zero_stage=st.integers(0, 3),
            recompute=st.sampled_from(Recompute),
            pipeline_split=st.none() | st.just((3, 4)),
        ),
        extras=st.lists(st.tuples(st.text(max_size=3), EXTRA), max_size=2).map(tuple),
    ),
    space=st.sampled_from(("z0", "z1")),
    attempt=st.integers(1, 2),
    soak_steps=st.integers(0, 2),
    timed_steps=st.integers(0, 2),
    turn=st.none()
    | st.builds(Turn, next_name=st.text(max_size=8), is_first=st.booleans(), steps=COUNTS),
)
MEMORY = st.builds(MemoryUse, free_before_bytes=COUNTS, peak_bytes=COUNTS, limit_bytes=COUNTS)
MEASUREMENTS = st.builds(
    Measurement,
    step_s=st.lists(SECONDS, min_size=1, max_size=3).map(tuple),
    samples_per_step=st.integers(1, 2**31),
    world_size=st.integers(1, 64),
    memory=st.none() | MEMORY,
    applied=st.none() | st.builds(AppliedStrategy),
    flops_per_step=st.none() | st.floats(0, 1e30),
    losses=st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    first_step=st.none() | st.integers(1, 9),
    all_losses=st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
)
CONDITIONS = st.builds(
    Conditions,
    load_before=st.none() | SECONDS,
    gpus=st.lists(st.builds(GpuState, slot=st.integers(0, 7)), max_size=2).map(tuple),
)
FAILURES = st.builds(
    FailedTrial,
    failure=st.builds(
        Failure,
        kind=st.sampled_from(FailureKind),
        detail=st.text(max_size=8),
        log_tail=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    ),
    memory=st.none() | MEMORY,
)
RECORDS = st.builds(
    Record,
    trial=TRIALS,
    outcome=MEASUREMENTS | FAILURES,
    wall_s=SECONDS,
    prediction=st.none()
    | st.builds(
        Prediction,
        peak_bytes=st.none() | COUNTS,
        step_s=st.none() | SECONDS,
        band=st.none() | SECONDS,
        how=st.text(max_size=4),
    ),
    conditions=st.none() | CONDITIONS,
)


def through_json(line: dict[str, Any]) -> Any:
    return json.loads(json.dumps(line))


@given(RECORDS)
def test_a_record_comes_back_as_it_went(record: Record) -> None:
    assert repr(decode_record(through_json(encode_record(record)))) == repr(record)


def example(outcome: Measurement | FailedTrial) -> Record:
    trial = Trial(
        number=3, name="z1_gas1_tmbspg1", candidate=Candidate(layout=Layout()), space="z1"
    )
    return Record(trial=trial, outcome=outcome, wall_s=2.0)


MEASURED = example(Measurement(step_s=(1.0,), samples_per_step=1, world_size=1))
FAILED = example(FailedTrial(failure=Failure(kind=FailureKind.NAN, detail="the loss is NaN")))


def test_a_line_has_the_name_the_candidate_and_the_outcome_under_its_key() -> None:
    assert {"name", "number", "candidate", "measurement"} <= encode_record(MEASURED).keys()
    line = encode_record(FAILED)
    assert "measurement" not in line
    assert line["failure"]["kind"] == "nan"


def test_a_number_that_is_none_is_read() -> None:
    assert isinstance(MEASURED.outcome, Measurement)
    outcome = replace(MEASURED.outcome, losses=(float("nan"),))
    found = decode_record(through_json(encode_record(example(outcome))))
    assert repr(found.outcome) == repr(outcome)
    said = Prediction(peak_bytes=None, step_s=None, band=None, how="", least_step_s=math.nan)
    line = encode_record(replace(MEASURED, prediction=said))
    assert line["prediction"]["least_step_s"] == "nan"
    prediction = some(decode_record(line).prediction)
    assert prediction.least_step_s is None


@pytest.mark.parametrize("key", ["first_step", "all_losses"])
def test_a_line_of_before_lacks_what_is_new_and_is_read(key: str) -> None:
    line = encode_record(MEASURED)
    del line["measurement"][key]
    assert decode_record(line) == MEASURED


@pytest.mark.parametrize("key", ["name", "candidate", "measurement", "wall_s"])
def test_a_line_that_lacks_something_is_refused(key: str) -> None:
    line = encode_record(MEASURED)
    del line[key]
    with pytest.raises(DecodeError):
        decode_record(line)


@pytest.mark.parametrize("line", [None, [], 3, "x"])
def test_what_is_no_object_is_refused(line: object) -> None:
    with pytest.raises(DecodeError):
        decode_record(line)
