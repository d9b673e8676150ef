from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.playoff import summarise
from autoconf_launch.autotuner.search import SearchLimits, Skipped, Study, count_skipped
from autoconf_launch.autotuner.space import (
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Outcome,
    Rule,
    Trial,
    build_space,
)
from autoconf_launch.core import Candidate, FailureKind
from autoconf_launch.launcher.report.search import skipped_text

from ..conftest import (
    Answer,
    Loop,
    by_stage,
    candidate,
    failure_of,
    out_of_memory,
    settings,
    small_space,
    steps_of,
)

OWN = candidate(micro=4, accumulation=4)
"""In a space of the micro-batches 1, 2, 8 and 16 beside it."""


def explore(
    answer: Answer,
    baseline: Candidate = OWN,
    least: int = 4,
    limits: SearchLimits | None = None,
    rules: Sequence[Rule] = (),
    **given: Any,
) -> Study:
    """A search of one stage to its end."""
    space = small_space(baseline, stages=(0,), least=least)
    study = Study(space, None, settings(**given), rules=rules, limits=limits)
    return Loop(study, answer).run().study


def fits_up_to(micro: int) -> Answer:
    def answer(trial: Trial) -> Outcome:
        fits = trial.candidate.layout.micro_batch <= micro
        return steps_of(trial, 1.0) if fits else out_of_memory()

    return answer


def say(study: Study) -> str | None:
    skipped = summarise(study, duration_s=0.0).skipped
    return skipped_text(skipped) if skipped else None


def counts(**given: int) -> Skipped:
    names = ("needs_more_memory", "above_what_ran", "smaller", "open", "beyond_saturation")
    return Skipped(**{**dict.fromkeys(names, 0), "candidates": 9, **given})  # type: ignore[arg-type]


def test_a_search_of_all_candidates_says_so() -> None:
    assert say(explore(by_stage(1), least=1)) == "Every configuration was tried."


def test_micro_batches_below_the_users_are_left_out_and_counted() -> None:
    assert explore(by_stage(1)).pool.smaller == 2
    assert say(explore(by_stage(1))) == (
        "2 of 4 configurations skipped: micro-batch smaller than yours, which fits."
    )


def test_what_needs_more_than_what_ran_out_of_memory_is_left_out_and_counted() -> None:
    assert say(explore(fits_up_to(2))) == (
        "1 of 4 configurations skipped: more memory than one that ran out of it."
    )


def data_of(samples: int) -> Answer:
    """A script whose batches have as many samples as there are, where more are asked for."""

    def answer(trial: Trial) -> Outcome:
        if trial.candidate.layout.micro_batch <= samples:
            return steps_of(trial, 1.0)
        found = failure_of(FailureKind.NOT_APPLIED)
        return replace(found, failure=replace(found.failure, ran_micro_batch=samples))

    return answer


def test_a_micro_batch_larger_than_the_data_closes_all_larger_ones_of_every_stage() -> None:
    own = candidate(micro=2, accumulation=128)
    loop = Loop(Study(small_space(own, least=2), None, settings()), data_of(6)).run()
    refused = [trial.name for trial in loop.trials if trial.candidate.layout.micro_batch > 6]
    assert refused == ["z0_gas32_tmbspg8"]
    assert dict(loop.study.pool.rejected)["micro_batch_above_what_ran"] == 23
    assert (
        "micro-batch larger than the script reached (too few samples, or its own limit): 23;"
    ) in (say(loop.study) or "")


def test_each_reason_has_its_own_number() -> None:
    own = candidate(micro=2, accumulation=8)
    assert say(explore(fits_up_to(2), own, least=2)) == (
        "2 of 4 configurations skipped: more memory than one that ran out of it: 1; "
        "micro-batch smaller than yours, which fits: 1."
    )


def test_what_a_budget_left_is_counted() -> None:
    study = explore(by_stage(1), limits=SearchLimits(trials=2))
    assert say(study) == (
        "3 of 4 configurations skipped: micro-batch smaller than yours, which fits: 2; left when "
        "the search ended: 1."
    )


def test_what_a_rule_left_out_is_no_candidate() -> None:
    rule = Rule(name="no_16", keep=lambda t: t["micro_batch"] < 16, why="")
    study = explore(by_stage(1), rules=[rule])
    assert count_skipped(study) == counts(candidates=3, smaller=2)


def test_a_saturated_curve_is_named() -> None:
    left = count_skipped(explore(by_stage(1), tuner_type="model_based", least=1))
    assert left.open == left.beyond_saturation > 1
    assert skipped_text(left) == ("3 of 4 configurations skipped: throughput has levelled off.")


def test_patience_that_ended_a_search_is_named() -> None:
    left = count_skipped(explore(by_stage(1), least=1, tuner_early_stopping=2))
    assert left.open > 0
    assert skipped_text(left).endswith(
        "left after 2 trials in a row that were no better (tuner_early_stopping)."
    )


def test_without_a_measurement_nothing_is_said() -> None:
    assert say(explore(fits_up_to(0))) is None


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        (
            counts(needs_more_memory=1),
            "1 of 9 configurations skipped: more memory than one that ran out of it.",
        ),
        (
            counts(open=4, beyond_saturation=3),
            "4 of 9 configurations skipped: throughput has levelled off: "
            "3; left when the search ended: 1.",
        ),
        (counts(), "Every configuration was tried."),
    ],
)
def test_all_that_was_not_tried_is_said_in_one_sentence(left: Skipped, sentence: str) -> None:
    assert skipped_text(left) == sentence


def test_further_knobs_go_with_the_best_micro_batches_alone() -> None:
    space = build_space(
        candidate(accumulation=16),
        (
            KnobChoice("zero_stage", (0,), ChoiceKind.FREE),
            KnobChoice("micro_batch", (1,), ChoiceKind.MINIMUM),
            KnobChoice("num_workers", (0, 2), ChoiceKind.FREE),
        ),
        GlobalBatchRule(pinned=32),
        settings(),
    )
    study = Loop(Study(space, None, settings(num_tuning_micro_batch_sizes=1)), by_stage(1)).run()
    assert skipped_text(count_skipped(study.study)).endswith(
        "further knobs, which were tried only with the best micro-batches."
    )
