"""Bands beside the published tables that they come from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import STEP_TIME_BAND
from autoconf_launch.autotuner.planner import MeasuredGroup, Traits, step_band, time_band
from autoconf_launch.autotuner.planner.bands import MEASURED_GROUPS, Bits
from autoconf_launch.core import Layout, Offload, WeightFormat, Workload
from autoconf_launch.launcher.measurements.row import read_measurements
from autoconf_launch.launcher.measurements.validation import validate_table
from autoconf_launch.tuning_spaces import fabric, named_model

TABLES = Path(__file__).parents[3] / "benchmarks" / "ground_truth"
NOT_FITTED = (
    *("amp_heterogeneous_v100_t4", "bigscience_v100", "megatron_bridge", "simumax_b200"),
    "megatron_bridge_nemotron",
)
PLAIN = Traits(has_experts=False, bits=Bits.SIXTEEN, architecture="Ampere")
DENSE, SPARSE = (Workload(model=named_model(name)) for name in ("gpt2", "mixtral-8x7b"))
A100 = "A100-SXM-80GB"


def group(traits: Traits, error: float, settings: int = 50) -> MeasuredGroup:
    return MeasuredGroup(table="t", traits=traits, settings=settings, error=error)


def test_groups_weigh_by_their_settings_and_likeness() -> None:
    other = group(replace(PLAIN, architecture="Hopper"), 0.5)
    band = step_band(PLAIN, [group(PLAIN, 0.1, settings=10**6), other])
    assert band.error == pytest.approx(0.1, abs=0.01)
    assert band.unchecked == ()
    four_bits = replace(PLAIN, bits=Bits.FP4)
    alone, many = (
        step_band(four_bits, [group(PLAIN, 0.1), group(four_bits, 0.01, settings=count)])
        for count in (1, 50)
    )
    assert alone.unchecked == ("more than one run of fp4",)
    assert many.unchecked == ()
    assert alone.error > step_band(PLAIN, [group(PLAIN, 0.1)]).error
    sparse = replace(PLAIN, has_experts=True)
    measured = [group(sparse, 0.4)]
    assert step_band(PLAIN, measured).error < step_band(sparse, measured).error
    wide = group(replace(PLAIN, bits=Bits.FP8), 0.4)
    few, often = (step_band(PLAIN, [wide, group(PLAIN, 0.1, settings=n)]).error for n in (2, 400))
    assert few > often


@pytest.mark.parametrize(
    ("unseen", "what"),
    [
        (replace(PLAIN, has_experts=True), "experts"),
        (replace(PLAIN, bits=Bits.FP4), "fp4"),
        (replace(PLAIN, architecture="Rubin"), "Rubin"),
    ],
)
def test_what_no_group_has_widens_the_band_and_is_named(unseen: Traits, what: str) -> None:
    measured = [group(PLAIN, 0.1)]
    band = step_band(unseen, measured)
    assert band.error > step_band(PLAIN, measured).error
    assert band.unchecked == (what,)


def test_bands_of_unchecked_traits_are_wider_and_name_them() -> None:
    plain = time_band(DENSE, Layout(), A100)
    quantized = replace(DENSE, lora_rank=8, weight_format=WeightFormat.NF4)
    offloaded = time_band(DENSE, Layout(offload=Offload.OPTIMIZER), A100)
    assert plain.unchecked == ()
    assert offloaded.unchecked == ("offload",)
    assert time_band(quantized, Layout(), A100).unchecked == ("quantized weights",)
    assert offloaded.error > plain.error
    dense, sparse = (time_band(one, Layout(), "H100-SXM-80GB").error for one in (DENSE, SPARSE))
    assert sparse > dense
    assert time_band(DENSE, Layout(), "MI300X-192GB").unchecked == ("MI300X-192GB",)
    keys = [(one.table, one.traits) for one in MEASURED_GROUPS]
    assert len(set(keys)) == len(keys)


def test_assumed_rates_widen_the_band_and_measuring_them_takes_that_back() -> None:
    measured = time_band(DENSE, Layout(), "X9")
    some = time_band(DENSE, Layout(), "X9", assumed=("attention_tflops",))
    all_of_them = ("reached_tflops", "attention_tflops", "all_reduce_gb_per_s")
    assumed = time_band(DENSE, Layout(), "X9", assumed=all_of_them)
    assert measured.error < some.error < assumed.error < 1
    assert assumed.measured_error == some.measured_error == measured.error
    assert assumed.unchecked == measured.unchecked == ("X9",)


@pytest.mark.slow
def test_nine_of_ten_steps_of_the_tables_fitted_on_lie_within_one_band() -> None:
    timed = [
        validate_table(read_measurements(path)).timed
        for path in sorted(TABLES.glob("*.csv"))
        if path.stem not in NOT_FITTED
    ]
    errors = np.concatenate([np.abs(one.predicted_s_R / one.measured_s_R - 1) for one in timed])
    assert np.mean(errors <= STEP_TIME_BAND) >= 0.9


def test_a_network_that_no_run_had_widens_the_band() -> None:
    layout, work = Layout(data_parallel=8), DENSE
    usual, blocked = (
        time_band(work, layout, "H100-SXM-80GB", fabric=fabric(name))
        for name in ("nonblocking", "oversubscribed 2:1")
    )
    assert blocked.error > 1.5 * usual.error
    assert (usual.unchecked, blocked.unchecked) == ((), ("oversubscribed networks",))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nemotron3-nano", ()),
        ("nemotron-h-8b", ("layers with a state in models without experts",)),
        ("jamba-1.5-mini", ("layers with such a state",)),
        ("qwen2.5-vl-7b", ("a tower in front of the text part",)),
        ("flux-dev", ("models of images",)),
        ("deepseek-v3.2", ("attention to chosen keys",)),
    ],
)
def test_parts_that_no_published_run_has_widen_the_band(name: str, what: tuple[str, ...]) -> None:
    band = time_band(Workload(model=named_model(name)), Layout(), "H100-SXM-80GB")
    assert band.unchecked == what
