"""The work of a study for a trial does not grow with the trials before it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.search import SearchLimits, Study, repeats
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Record,
    build_space,
)
from autoconf_launch.autotuner.strategies import surrogate

from .conftest import candidate, settings, steps_of

TRIALS = 10


def new_study() -> Study:
    baseline = candidate(accumulation=128, ranks=2)
    choices = (
        KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.FREE),
        KnobChoice("micro_batch", (1, 2, 4, 8, 16), ChoiceKind.LISTED),
        KnobChoice(
            "reduce_bucket_size", tuple(range(10**7, 31 * 10**7, 10**7)), ChoiceKind.LISTED
        ),
    )
    rule = GlobalBatchRule(pinned=baseline.layout.global_batch)
    space = build_space(baseline, choices, rule, AutotuningSettings())
    given = {"strategy": "global", "tuner_early_stopping": 10**6, "tuner_num_trials": 10**6}
    asked = settings(**given, num_tuning_micro_batch_sizes=20)
    return Study(space, None, asked, limits=SearchLimits(seconds=1e6))


def further(study: Study, count: int) -> None:
    """Run `count` more trials, with the repeats between them."""
    draw = np.random.default_rng(len(study.records))
    until = len(study.records) + count
    while len(study.records) < until:
        assert study.stop_reason() is None
        (trial,) = study.ask(1, 0.0)
        outcome = steps_of(trial, math.exp(0.05 * draw.standard_normal()))
        study.end_step(trial, outcome.step_s)
        study.tell(Record(trial=trial, outcome=outcome, wall_s=10.0))


def calls_of(work: Callable[[], None]) -> int:
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_trial_late_in_a_study_is_no_more_work_than_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (repeats, surrogate):  # the most that is learned from, reached soon
        monkeypatch.setattr(module, "MOST_SEEN", 16)
    study = new_study()
    further(study, 20)
    before = calls_of(lambda: further(study, TRIALS))
    further(study, 70)
    after = calls_of(lambda: further(study, TRIALS))
    assert after < 1.5 * before
