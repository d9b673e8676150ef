from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    estimate,
    knob_rules,
    memory_rule,
    state_beyond_memory,
    weights_beyond_memory,
)
from autoconf_launch.autotuner.space import CandidateTable, PredictionTable, SearchSpace
from autoconf_launch.core import (
    CONTEXT_BYTES,
    BlockSpec,
    ClusterSpec,
    Device,
    Grade,
    MemoryUse,
    MicroBatchTiming,
    ModelSpec,
    Node,
    Optimizer,
    Precision,
    Workload,
)

from ..conftest import candidate

TABLE = CandidateTable.from_candidates([candidate(micro=m) for m in (1, 2, 4)])
MODEL = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(BlockSpec(name="model", parameters=10, activation_bytes=100),),
    timings=(MicroBatchTiming(micro_batch=1, forward_backward_s=1.0, activation_bytes=0),),
)

WORKLOAD = Workload(model=MODEL, optimizer=Optimizer.from_name("AdamW"), precision=Precision.FP32)


def units(*sizes: int | None) -> CandidateTable:
    """Candidates with so many blocks per unit; None leaves the knob out."""
    extras = [(("blocks_per_unit", size),) if size else () for size in sizes]
    return CandidateTable.from_candidates([replace(candidate(), extras=e) for e in extras])


def test_candidates_beyond_blocks_or_known_state_are_ruled_out() -> None:
    pieces = replace(MODEL, blocks=(BlockSpec(name="b", count=3), BlockSpec(name="head")))
    (rule,) = knob_rules(pieces)
    assert rule.keep(units(None, 2, 4, 5)).tolist() == [True, True, True, False]
    spread = replace(candidate(), layout=replace(candidate().layout, tensor_parallel=2))
    space = SearchSpace(
        baseline=candidate(),
        table=CandidateTable.from_candidates([spread]),
        usual_C=np.ones(1, np.bool_),
    )
    assert state_beyond_memory(space, WORKLOAD, cluster(1)) is None


@pytest.mark.parametrize("spec", [None, replace(MODEL, grade=Grade.ARCHITECTURE)])
def test_a_model_that_was_not_looked_at_rules_no_unit_out(spec: ModelSpec | None) -> None:
    assert knob_rules(spec) == ()


def cluster(memory_bytes: int, name: str = "cpu (x86_64)") -> ClusterSpec:
    device = Device(name=name, memory_bytes=memory_bytes)
    return ClusterSpec(nodes=(Node(host="here", devices=(device, device)),))


def predict(*peaks_bytes: float) -> PredictionTable:
    unknown = np.full(len(peaks_bytes), np.nan)
    return PredictionTable(
        peak_bytes_C=np.array(peaks_bytes), step_s_C=unknown, band=None, how="by hand"
    )


def test_memory_and_seconds_are_predicted_for_each_row_with_how() -> None:
    found = estimate(TABLE, WORKLOAD, cluster(1))
    # 10 weights of 16 bytes with their state, then 100 bytes and 1 s for each sample.
    assert found.peak_bytes_C.tolist() == [260, 360, 560]
    assert found.step_s_C.tolist() == [1.0, 2.0, 4.0]
    assert estimate(TABLE, WORKLOAD, cluster(1)).how == (
        "memory by formula, time from 1 profiled micro-batches"
    )
    found = estimate(TABLE, Workload(), cluster(1))
    assert np.isnan(found.peak_bytes_C).all()
    assert np.isnan(found.step_s_C).all()


def test_gpus_need_context_and_room_to_update_all_weights_at_once() -> None:
    small = replace(MODEL, blocks=(BlockSpec(name="model", parameters=10, activation_bytes=1),))
    on_cpu, on_gpu = (
        estimate(TABLE, replace(WORKLOAD, model=small), cluster(1, name))
        for name in ("cpu (x86_64)", "NVIDIA H200")
    )
    # 40 bytes in all, of which backward has freed those of the activations.
    parts = dict(on_gpu.memory_parts)
    outside = parts["context"] + parts["fragmentation"] + parts["communication"]
    more = on_gpu.peak_bytes_C - outside - on_cpu.peak_bytes_C
    assert more.tolist() == pytest.approx([39, 38, 36])
    parts = dict(estimate(TABLE, WORKLOAD, cluster(1, "NVIDIA H200")).memory_parts)
    assert set(parts["context"]) == {CONTEXT_BYTES}
    assert (parts["fragmentation"] > 0).all()


def test_rows_are_dropped_only_if_they_are_known_to_be_beyond_the_band() -> None:
    rule = memory_rule(predict(100, 124, 126), cluster(100), band=0.2)
    assert rule.keep(TABLE).tolist() == [True, True, False]
    rule = memory_rule(predict(np.nan, 1, 1e9), cluster(100))
    assert rule.keep(TABLE).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="1 predictions are not of 3 candidates"):
        memory_rule(predict(1), cluster(1)).keep(TABLE)


@pytest.mark.parametrize(
    ("optimizer", "memory_bytes", "says"),
    [
        (WORKLOAD.optimizer, 127, "gradients and optimizer state take at least 160 B per rank"),
        (WORKLOAD.optimizer, 128, None),
        (Optimizer(), 63, "gradients take at least 80 B per rank"),
        (Optimizer(), 64, None),
    ],
)
def test_state_that_no_rank_can_hold_is_said_beyond_the_error_of_predictions(
    optimizer: Optimizer, memory_bytes: int, says: str | None
) -> None:
    space = SearchSpace(baseline=candidate(), table=TABLE, usual_C=np.ones(3, np.bool_))
    found = state_beyond_memory(
        space, replace(WORKLOAD, optimizer=optimizer), cluster(memory_bytes)
    )
    assert (found is None) if says is None else (found is not None and says in found)


@pytest.mark.parametrize(("stages", "is_said"), [((0, 0), True), ((0, 3), False)])
def test_weights_that_did_not_fit_end_a_search_that_lays_out_none_otherwise(
    stages: tuple[int, int], is_said: bool
) -> None:
    rows = [
        replace(candidate(), layout=replace(candidate().layout, zero_stage=stage, micro_batch=n))
        for n, stage in enumerate(stages, start=1)
    ]
    table = CandidateTable.from_candidates(rows)
    space = SearchSpace(baseline=rows[0], table=table, usual_C=np.ones(2, np.bool_))
    use = MemoryUse(free_before_bytes=10**9, peak_bytes=2 * 10**9, limit_bytes=10**9)
    text = weights_beyond_memory(space, replace(use, weights_alone=True))
    assert bool(text) is is_said
    assert weights_beyond_memory(space, None) is None
