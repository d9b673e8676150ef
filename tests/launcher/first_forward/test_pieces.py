"""A traced script as a value: its optimizer, memory, steps, rooms, plans; no script runs here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import Verdict
from autoconf_launch.core import ConfigError, Layout, Recompute
from autoconf_launch.launcher.estimates import PlanRequest, parse_fit, parse_plan
from autoconf_launch.launcher.first_forward import (
    TracedScript,
    fit_by_pieces,
    plan_by_pieces,
    rooms,
)
from autoconf_launch.launcher.first_forward.answers import (
    PiecesQuestion,
    largest,
    layout_peak_bytes,
    recomputations,
    traced_rows,
)
from autoconf_launch.launcher.first_forward.command import check_pieces
from autoconf_launch.launcher.report import why_nothing

from .made import GB, MODEL, WEIGHTS, pieces_of, script


@pytest.mark.parametrize(
    ("optimizer", "state_bytes", "name", "values"),
    [
        ("AdamW", 8 * WEIGHTS, "adamw", 2),
        ("SGD", 4 * WEIGHTS, "momentum", 1),
        ("SGD", 0, "sgd", 0),
        ("Lion", 4 * WEIGHTS, "lion", 1),
        ("Shampoo", 20 * WEIGHTS, "adamw", 5),
        ("SGD", None, "sgd", 0),
        ("Adam", None, "adam", 2),
        (None, None, "adamw", 2),
    ],
)
def test_an_optimizer_is_known_by_what_it_keeps_else_by_its_name(
    optimizer: str | None, state_bytes: int | None, name: str, values: int
) -> None:
    one = script(optimizer=optimizer, state_bytes=state_bytes)
    assert (one.optimizer, one.states) == (name, values)


def test_peaks_have_the_optimizer_s_state() -> None:
    def peak(one: TracedScript) -> int:
        return max(peak.peak_bytes for peak in one.spec.traced_peaks)

    assert peak(script()) - peak(script(state_bytes=0, optimizer="SGD")) == 2 * GB


def parts(layout: Layout, cluster: str = "8xA100-SXM-80GB") -> dict[str, float]:
    return dict(traced_rows(pieces_of(cluster), [layout])[0].memory)


def test_alone_a_rank_needs_what_was_traced() -> None:
    found = parts(Layout(micro_batch=4), "A100-SXM-80GB")
    overhead = found["context"] + found["fragmentation"]
    assert sum(found.values()) - overhead == pytest.approx((10 + 2) * GB)


def test_another_micro_batch_grows_by_its_samples() -> None:
    four, eight, two = (
        sum(parts(Layout(micro_batch=n), "A100-SXM-80GB").values()) for n in (4, 8, 2)
    )
    assert eight - four == pytest.approx(2 * (four - two))


def test_buckets_of_gradients_stand_beside_all_activations() -> None:
    found = parts(Layout(micro_batch=4, data_parallel=8))
    assert found["gradients"] == pytest.approx(GB)
    assert found["activations"] == pytest.approx(8 * GB)


@pytest.mark.parametrize(("stage", "part"), [(1, "optimizer"), (2, "gradients"), (3, "gradients")])
def test_stages_share_one_more_part(stage: int, part: str) -> None:
    before = parts(Layout(micro_batch=4, data_parallel=8, zero_stage=stage - 1))[part]
    after = parts(Layout(micro_batch=4, data_parallel=8, zero_stage=stage))[part]
    assert after <= before
    assert after < before or stage == 3


def test_recomputation_keeps_the_inputs_of_blocks() -> None:
    plain = Layout(micro_batch=4, data_parallel=8)
    full = Layout(micro_batch=4, data_parallel=8, recompute=Recompute.FULL)
    assert layout_peak_bytes(pieces_of(), full) < layout_peak_bytes(pieces_of(), plain) - 3 * GB


def test_a_script_that_recomputes_goes_on_doing_so() -> None:
    assert recomputations(pieces_of().script) == (Recompute.NONE, Recompute.FULL)
    assert recomputations(pieces_of(recompute=Recompute.FULL).script) == (Recompute.NONE,)


def test_a_step_takes_its_operations_at_least_as_long_as_the_datasheet_says() -> None:
    row = traced_rows(pieces_of("A100-SXM-80GB"), [Layout(micro_batch=4)])[0]
    assert row.step_s is not None
    assert row.step_s > 2.4e13 / 156e12


def test_a_pass_without_operations_has_memory_alone() -> None:
    row = traced_rows(pieces_of(operations=()), [Layout(micro_batch=4, data_parallel=8)])[0]
    assert (row.step_s, row.step) == (None, ())
    assert row.peak_bytes > 0


def test_one_size_alone_lets_all_but_the_weights_grow() -> None:
    one = pieces_of("A100-SXM-80GB", peaks=pieces_of().script.found.peaks[:2])
    four, eight = (layout_peak_bytes(one, Layout(micro_batch=n)) for n in (4, 8))
    assert eight - four >= 8 * GB


def test_a_pass_that_kept_nothing_still_has_its_weights() -> None:
    idle = replace(MODEL, blocks=(replace(MODEL.blocks[0], activation_bytes=0),))
    one = pieces_of("A100-SXM-80GB", peaks=(), model=idle)
    assert layout_peak_bytes(one, Layout(micro_batch=4)) > 4 * GB


def test_what_a_script_recomputes_by_itself_is_not_saved_twice() -> None:
    words = ["--cluster", "A100-SXM-80GB", "--precision", "fp32", "--global-batch", "4"]
    request = parse_fit([*words, "--micro-batch", "4", "--recompute", "full"], of_script=True)
    answer, found = fit_by_pieces(request, script(recompute=Recompute.FULL))
    traced = layout_peak_bytes(pieces_of("A100-SXM-80GB"), Layout(micro_batch=4))
    assert answer.memory.total[0, 0] == pytest.approx(traced)
    assert {room.peak_bytes for room in found} == {answer.memory.total[0, 0]}


NONE = (Recompute.NONE,)


@given(st.integers(0, 5000))
def test_the_largest_one_that_fits_is_found(limit: int) -> None:
    assert largest(lambda size: size <= limit) == limit


def test_there_is_an_end_to_looking() -> None:
    assert largest(lambda size: True) == 1 << 20


def test_one_rank_has_nothing_to_share() -> None:
    assert [room.zero_stage for room in rooms(Layout(), NONE, lambda _: 1.0, 10)] == [0]


def test_every_stage_has_its_room() -> None:
    def peak(layout: Layout) -> float:
        return 10.0 * layout.micro_batch + 100.0 / (1 + layout.zero_stage)

    layout = Layout(data_parallel=8, micro_batch=2)
    found = rooms(layout, NONE, peak, 100)
    assert [room.verdict for room in found] == [
        Verdict.NO,
        Verdict.YES,
        Verdict.YES,
        Verdict.YES,
    ]
    assert [room.largest for room in found] == [0, 4, 5, 6]


def request(batch: int, *flags: str, cluster: str = "8xA100") -> PlanRequest:
    words = ["--cluster", cluster, "--global-batch", str(batch), "--precision", "fp32", *flags]
    return parse_plan(words, of_script=True)


def test_every_split_of_the_global_batch_is_considered() -> None:
    found = plan_by_pieces(request(64, "--top", "0"), script())
    assert {one.layout.global_batch for one in found.plan.best} == {64}
    assert {one.layout.micro_batch for one in found.plan.best} == {1, 2, 4, 8}
    assert found.plan.considered == 4 * 4 * 2


def test_a_batch_that_does_not_divide_is_named() -> None:
    found = plan_by_pieces(request(63), script())
    assert not found.plan.best
    assert "--global-batch 63 is not a multiple of 8 GPUs" in why_nothing(found)


def test_the_smallest_need_is_named_where_nothing_fits() -> None:
    found = plan_by_pieces(request(64, cluster="8xT4-16GB"), script())
    less = plan_by_pieces(request(1, cluster="1xT4-16GB"), script())
    assert found.plan.best
    assert less.plan.smallest is not None
    assert "the smallest need is" in why_nothing(less)


def test_each_stage_and_recomputation_stands_once_the_fastest_first() -> None:
    best = plan_by_pieces(request(64), script()).plan.best
    kinds = [(one.layout.zero_stage, one.layout.recompute) for one in best]
    assert len(kinds) == len(set(kinds)) > 1
    assert best[0].step_s <= 1.05 * min(one.step_s for one in best)
    assert best[0].layout.zero_stage < 3, "of equal ones, the one that shards least"


def test_what_leaves_the_headroom_stands_first() -> None:
    found = plan_by_pieces(request(64, "--top", "0"), script())
    middle = sorted(one.peak_bytes for one in found.plan.best)[len(found.plan.best) // 2]
    limit = ("--memory-limit", f"{int(middle / 0.95)}b")
    tight = plan_by_pieces(request(64, "--top", "0", *limit), script())
    safe = [one.peak_bytes <= 0.9 * middle / 0.95 for one in tight.plan.best]
    assert safe == sorted(safe, reverse=True)
    assert len(set(safe)) == 2


WORK = ("--cluster", "8xA100", "--global-batch", "64")


def check(*own: str) -> None:
    precision = () if "--precision" in own else ("--precision", "fp32")
    asked = parse_fit([*WORK, *precision, *own], of_script=True)
    check_pieces(asked.training, script(), asked)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        *(
            (own, "architecture is known")
            for own in (
                *(("--tp", "2"), ("--pp=4",), ("--offload", "optimizer"), ("--seq", "8")),
                *(("--lora_rank", "4"), ("--recompute", "selective")),
            )
        ),
        (("--precision", "fp8"), "--precision fp8 needs a model"),
    ],
)
def test_what_pieces_cannot_tell_is_refused(own: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(*own)


def test_degrees_of_one_ask_for_nothing() -> None:
    check("--tp", "1", "--pp", "1", "--offload", "none", "--zero", "3", "--recompute", "full")


def test_an_optimizer_flag_outweighs_the_script_s() -> None:
    with_flag = parse_fit([*WORK, "--optimizer", "sgd"], of_script=True).training
    without = parse_fit(WORK, of_script=True).training
    assert PiecesQuestion(script=script(), training=with_flag).optimizer.states == 0
    assert PiecesQuestion(script=script(), training=without).optimizer.states == 2
