"""Arguments that an external script ignored, as its probe found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import FailureKind, Recompute
from autoconf_launch.launcher.launch import adopt, read_outcome

from .test_outcome import APPLIED, EXPECTED, ends_of, plan_of, report, result_of

CHECKED = (
    ("micro_batch", "--batch_size"),
    ("zero_stage", "--fsdp"),
    ("recompute", "--gradient_checkpointing"),
)


def outcome(folder: Path, **applied: object) -> Outcome:
    found = replace(APPLIED, description="Net: DDP over 2 ranks", **applied)  # type: ignore[arg-type]
    report(folder, result_of(0, applied=found), result_of(1, applied=found))
    return read_outcome(
        replace(plan_of(folder, expected=EXPECTED), checked=CHECKED), ends_of(0, 0)
    )


@pytest.mark.parametrize(
    ("applied", "says"),
    [
        ({"micro_batch": 7}, "micro_batch 7 instead of 2 (asked by --batch_size)"),
        ({"recompute": Recompute.SELECTIVE}, "recompute selective instead of none (asked by --gr"),
        ({"zero_stage": 0}, "zero_stage 0 instead of 1 (asked by --fsdp); Net: DDP over 2 ranks"),
    ],
)
def test_a_script_that_ignores_its_argument_is_named(
    tmp_path: Path, applied: dict[str, object], says: str
) -> None:
    found = outcome(tmp_path, **applied)
    assert isinstance(found, FailedTrial)
    assert found.failure.kind is FailureKind.NOT_APPLIED
    assert says in found.failure.detail


@pytest.mark.parametrize(
    ("applied", "smaller"),
    [({"micro_batch": 1}, 1), ({"micro_batch": 7}, None), ({"zero_stage": 0}, None)],
)
def test_a_micro_batch_smaller_than_asked_is_kept_as_a_number(
    tmp_path: Path, applied: dict[str, object], smaller: int | None
) -> None:
    found = outcome(tmp_path, **applied)
    assert isinstance(found, FailedTrial)
    assert found.failure.ran_micro_batch == smaller


@pytest.mark.parametrize(
    "applied", [{}, {"accumulation": 9}, {"micro_batch": 0}, {"recompute": None}]
)
def test_what_is_not_checked_or_not_counted_is_no_failure(
    tmp_path: Path, applied: dict[str, object]
) -> None:
    assert isinstance(outcome(tmp_path, **applied), Measurement)


def test_an_adopted_trial_is_held_to_the_same(tmp_path: Path) -> None:
    outcome(tmp_path, micro_batch=7)
    task = plan_of(tmp_path).task
    assert task is not None
    found = adopt(task, world_size=2, expected=EXPECTED, checked=CHECKED)
    assert isinstance(found, FailedTrial)


def test_how_much_a_switch_recomputes_is_not_compared(tmp_path: Path) -> None:
    found = replace(APPLIED, recompute=Recompute.SELECTIVE)
    report(tmp_path, result_of(0, applied=found), result_of(1, applied=found))
    full = replace(EXPECTED, layout=replace(EXPECTED.layout, recompute=Recompute.FULL))
    plan = replace(plan_of(tmp_path, expected=full), checked=CHECKED)
    assert isinstance(read_outcome(plan, ends_of(0, 0)), Measurement)
