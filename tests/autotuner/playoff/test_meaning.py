from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff import MeaningVerdict
from autoconf_launch.autotuner.playoff.meaning import compare_losses
from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import AppliedStrategy, Precision, Recompute
from autoconf_launch.launcher.report.search import meaning_text

from ..builders import launch, measurement, trial_of

APPLIED = AppliedStrategy(
    zero_stage=0,
    data_parallel=1,
    micro_batch=1,
    accumulation=4,
    precision=Precision.FP32,
    recompute=Recompute.NONE,
)


def record(
    number: int, *losses: float, batch: int = 4, precision: Precision = Precision.FP32
) -> Record:
    applied = replace(APPLIED, precision=precision)
    outcome = replace(measurement(1.0, samples=batch), applied=applied, all_losses=losses)
    return launch(trial_of(number, {"micro_batch": batch}), outcome)


BASELINE = record(0, 5.0, 4.0, 3.0)


def verdict(winner: Record, *repeats: Record, baseline: Record = BASELINE) -> MeaningVerdict:
    found = compare_losses(baseline, winner, repeats)
    assert found is not None
    return found.verdict


HALF = record(0, 5.0, 4.0, precision=Precision.BF16)


@pytest.mark.parametrize(
    ("losses", "baseline", "found"),
    [
        pytest.param((5.0, 4.0, 3.0001), BASELINE, MeaningVerdict.SAME, id="equal"),
        pytest.param((5.0, 4.0, 3.3), BASELINE, MeaningVerdict.DIFFERS, id="beyond tolerance"),
        pytest.param((5.0, 4.0), BASELINE, MeaningVerdict.SAME, id="of the steps both made"),
        pytest.param((5.0, 4.04), HALF, MeaningVerdict.SAME, id="more in half precision"),
        pytest.param(
            (math.inf,), record(0, math.inf), MeaningVerdict.NOT_COMPARED, id="all infinite"
        ),
    ],
)
def test_losses_within_the_tolerance_are_the_same_training(
    losses: tuple[float, ...], baseline: Record, found: MeaningVerdict
) -> None:
    assert verdict(record(1, *losses), baseline=baseline) is found


def test_what_the_baseline_differs_from_itself_is_allowed() -> None:
    winner, repeat = record(1, 5.05, 4.0), record(0, 5.03, 4.0)
    assert verdict(winner) is MeaningVerdict.DIFFERS
    assert verdict(winner, repeat) is MeaningVerdict.SAME


@pytest.mark.parametrize(
    ("winner", "repeats", "reason"),
    [
        pytest.param(record(1, 5.0, batch=8), (), "global batches are 4 and 8", id="batch"),
        pytest.param(record(1), (), "reports no finite losses", id="losses"),
        pytest.param(record(1, 5.0), (record(0, 9.0),), "draws new data or weights", id="seed"),
        pytest.param(
            record(1, 5.0, 4.0), (record(0, 5.0, math.inf),), "differ by 100.0 %", id="repeat"
        ),
    ],
)
def test_where_nothing_can_be_compared_the_reason_is_said(
    winner: Record, repeats: tuple[Record, ...], reason: str
) -> None:
    found = compare_losses(BASELINE, winner, repeats)
    assert found is not None
    assert found.verdict is MeaningVerdict.NOT_COMPARED
    assert reason in meaning_text(found)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_loss_that_is_infinite_in_one_of_them_alone_is_another_training(place: int) -> None:
    losses = [5.0, 4.0, 3.0]
    losses[place] = math.inf
    found = compare_losses(BASELINE, record(1, *losses))
    assert found is not None
    assert (found.verdict, found.worst) == (MeaningVerdict.DIFFERS, None)
    assert "over the first 3 global batches: only one of them is finite;" in meaning_text(found)


def test_the_users_own_configuration_needs_no_comparison() -> None:
    assert compare_losses(BASELINE, BASELINE) is None
