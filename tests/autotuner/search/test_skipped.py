from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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

from ...rows import rows
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
    return Skipped(**{**dict.fromkeys(names, 0), "candidates": 4, **given})  # type: ignore[arg-type]


NO_16 = Rule(name="no_16", keep=lambda t: t["micro_batch"] < 16, why="")
MIDDLE = candidate(micro=2, accumulation=8)


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


@rows(
    "study, expected",
    {
        "none of them": (lambda: explore(by_stage(1), least=1), {}),
        "smaller micro-batches": (lambda: explore(by_stage(1)), {"smaller": 2}),
        "larger than one without memory": (
            lambda: explore(fits_up_to(2)),
            {"needs_more_memory": 1},
        ),
        "both": (
            lambda: explore(fits_up_to(2), MIDDLE, least=2),
            {"needs_more_memory": 1, "smaller": 1},
        ),
        "left by the budget": (
            lambda: explore(by_stage(1), limits=SearchLimits(trials=2)),
            {"smaller": 2, "open": 1},
        ),
        "not those a rule left out": (
            lambda: explore(by_stage(1), rules=[NO_16]),
            {"candidates": 3, "smaller": 2},
        ),
        "beyond saturation": (
            lambda: explore(by_stage(1), tuner_type="model_based", least=1),
            {"open": 3, "beyond_saturation": 3},
        ),
    },
)
def test_candidates_that_were_not_tried_are_counted(
    study: Callable[[], Study], expected: dict[str, int]
) -> None:
    assert count_skipped(study()) == counts(**expected)


@rows(
    "left, facts",
    {
        "none": (counts(), ["Every configuration was tried."]),
        "one reason": (counts(needs_more_memory=1), ["1 of 4", "more memory"]),
        "smaller": (counts(smaller=2), ["2 of 4", "micro-batch smaller than yours, which fits"]),
        "two reasons": (
            counts(open=4, beyond_saturation=3),
            ["4 of 4", "throughput has levelled off: 3;", "left when the search ended: 1."],
        ),
    },
)
def test_each_reason_is_said_with_its_number(left: Skipped, facts: list[str]) -> None:
    assert all(fact in skipped_text(left) for fact in facts)


def test_patience_is_named_and_nothing_said_without_a_measurement() -> None:
    left = count_skipped(explore(by_stage(1), least=1, tuner_early_stopping=2))
    assert left.open > 0
    assert "2 trials in a row that were no better (tuner_early_stopping)" in skipped_text(left)
    assert say(explore(fits_up_to(0))) is None
    assert "1 of 4" in (say(explore(fits_up_to(2))) or "")
    own = explore(fits_up_to(2), MIDDLE, least=2)
    assert "1; micro-batch" in (say(own) or "")
    assert explore(by_stage(1)).pool.smaller == 2
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
