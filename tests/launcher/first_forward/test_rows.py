from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.core import Layout, Recompute
from autoconf_launch.launcher.estimates import parse_fit
from autoconf_launch.launcher.first_forward import fit_by_pieces
from autoconf_launch.launcher.first_forward.answers import (
    layout_peak_bytes,
    recomputations,
    traced_rows,
)

from .made import GB, MODEL, pieces_of, script


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
