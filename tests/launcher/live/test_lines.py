from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.core import BlockSpec, FailureKind, Grade, ModelSpec
from autoconf_launch.launcher.events import (
    Event,
    Finished,
    Note,
    RoundFinished,
    Standing,
    TrialFinished,
)
from autoconf_launch.launcher.live import LinesView, wrap_sentences
from autoconf_launch.launcher.report import failure_lines, profile_line, round_line, trial_line

from ..report.fixed import RECORDS, events, failure_of, golden, record, trial

BEST, OTHER = "ZeRO 0 · micro 8 · accum 2", "ZeRO 0 · micro 16 · accum 1"


def show(said: Iterable[Event], *, quiet: bool = False, level: str = "info") -> str:
    lines: list[str] = []
    view = LinesView(lines.append, quiet=quiet, level=level)
    for event in said:
        view.handle(event)
    return "".join(f"{line}\n" for line in lines)


def test_the_lines_are_as_they_were_looked_at() -> None:
    assert show((Note(text="a note"), *events())) == golden("lines.txt")


def test_quiet_leaves_warnings_and_the_end() -> None:
    said = (Note(text="a note"), Note(text="odd", warning=True), *events(), Finished(text="end"))
    assert show(said, quiet=True) == "autoconf-launch: warning: odd\n\nend\n"


def test_a_detail_is_shown_at_the_level_debug_alone() -> None:
    said = (Note(text="bounds", detail=True),)
    assert (show(said), show(said, level="debug")) == ("", "autoconf-launch: bounds\n")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"again": 5}, "re-measured 1"),
        ({"final": True, "attempt": 2}, "playoff 2"),
        ({"soak_steps": 50}, "verification run"),
    ],
)
def test_a_line_says_what_its_launch_was_for(changed: dict[str, Any], what: str) -> None:
    launched = replace(RECORDS[1], trial=replace(RECORDS[1].trial, **changed))
    line = trial_line(TrialFinished(record=launched, best=RECORDS[3], elapsed_s=9.0))
    assert line.startswith(f"[0:09] {what:<16s} ZeRO 0 · micro 8 · accum 2 ")


def test_debug_adds_starts_and_steps() -> None:
    added = show(events(), level="debug").splitlines()
    assert added[-2:] == [
        "trial 5 ZeRO 1 · micro 16 · accum 1 started",
        "  rank 1 step 3: 0.1000 s",
    ]


def test_a_full_memory_needs_no_log() -> None:
    assert failure_lines(RECORDS[2]) == []


def test_a_crash_comes_with_its_sentence_and_the_last_lines() -> None:
    crashed = record(trial(1, 0, 1), failure_of(FailureKind.CRASHED, "rank 0 ended with code 1"))
    assert failure_lines(crashed) == [
        "trial 1 ZeRO 0 · micro 1 · accum 16 crashed: rank 0 ended with code 1 "
        "(its folder is z0_gas16_tmbspg1)",
        "  | Traceback [most]",
        "  | ValueError: no",
    ]


def test_what_was_launched_again_says_so_under_its_own_label() -> None:
    again = replace(RECORDS[0].trial, name=f"{RECORDS[0].trial.name}_again", again=5)
    done = TrialFinished(record=replace(RECORDS[0], trial=again), best=RECORDS[3], elapsed_s=9.0)
    line = trial_line(done)
    assert line.startswith("[0:09] baseline again   ZeRO 0 · micro 1 · accum 16 ")


def stood(behind: float, width: float) -> str:
    standings = (
        Standing(trial=trial(1, 0, 8), behind=0.0, width=0.0),
        Standing(trial=trial(2, 0, 16), behind=behind, width=width),
    )
    return round_line(RoundFinished(number=2, elapsed_s=9.0, standings=standings))


def test_only_sentences_are_wrapped() -> None:
    table = "| a | b c d e f g h i j k |\n  trial  config of two words\n-----  -----------"
    command = "  autoconf-launch train.py --config optimal.json"
    wrapped = wrap_sentences(f"One two three four five.\n\n{table}\n{command}", 12)
    assert wrapped == f"One two\nthree four\nfive.\n\n{table}\n{command}"


def test_a_round_tells_how_far_behind_another_one_is() -> None:
    assert stood(0.1, 0.05).endswith(f"{BEST} leads; {OTHER} is 10.5 % slower (+5.1 to +16.2 %)")


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.9, "is 90.0 % slower (+80.7 to +99.7 %)"),
        (2.1, "is 2.1x slower (2 to 2.21x)"),
        (77.8, "is 77.8x slower (74 to 81.8x)"),
        (250.0, "is 250x slower (238 to 263x)"),
    ],
)
def test_what_takes_more_than_twice_as_long_is_said_in_times(ratio: float, said: str) -> None:
    assert stood(math.log(ratio), 0.05).endswith(f"{BEST} leads; {OTHER} {said}")


@pytest.mark.parametrize("width", [1.2, float("inf")])
def test_an_interval_that_says_nothing_is_not_shown(width: float) -> None:
    assert stood(0.1, width).endswith(f"{BEST} leads; {OTHER} inconclusive so far")


def test_a_wide_interval_is_shown_of_what_is_far_behind() -> None:
    assert "x slower (6.05 to 66.7x)" in stood(3.0, 1.2)


def test_a_model_that_was_not_looked_into_is_not_said_to_need_nothing() -> None:
    block = BlockSpec(name="model", count=1, parameters=2_000_000)
    said = profile_line(ModelSpec(grade=Grade.OPAQUE, blocks=(block,)), 3.0)
    assert said.endswith("(2 M trainable), activations and FLOPs unknown")


def test_a_model_whose_operations_no_formula_counts_is_not_said_to_have_none() -> None:
    block = BlockSpec(name="model", count=1, parameters=2_000_000, activation_bytes=1000)
    said = profile_line(ModelSpec(grade=Grade.MEASURED, blocks=(block,)), 3.0)
    assert said.endswith("activations per sample [measured], FLOPs could not be counted")


def test_a_second_launch_that_crashes_alike_does_not_repeat_the_log() -> None:
    crashed = next(r for r in RECORDS if r.failure and r.failure.kind is FailureKind.CRASHED)
    event = TrialFinished(record=crashed, best=None, elapsed_s=1.0)
    shown = show((event, event))
    assert shown.count("rank 1 ended with code 1") == 2
    assert shown.count("ValueError: no") == 1
