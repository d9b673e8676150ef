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


@pytest.mark.parametrize(
    ("place", "changed", "what"),
    [
        (1, {"again": 5}, "re-measured 1"),
        (1, {"final": True, "attempt": 2}, "playoff 2"),
        (1, {"soak_steps": 50}, "verification run"),
        (0, {"name": f"{RECORDS[0].trial.name}_again", "again": 5}, "baseline again"),
    ],
)
def test_a_line_says_what_its_launch_was_for(
    place: int, changed: dict[str, Any], what: str
) -> None:
    launched = replace(RECORDS[place], trial=replace(RECORDS[place].trial, **changed))
    line = trial_line(TrialFinished(record=launched, best=RECORDS[3], elapsed_s=9.0))
    own = BEST if place else "ZeRO 0 · micro 1 · accum 16"
    assert line.startswith(f"[0:09] {what:<16s} {own} ")


def test_debug_adds_starts_steps_and_details() -> None:
    said = (*events(), Note(text="bounds", detail=True))
    assert show(said, level="debug").splitlines()[-3:] == [
        "trial 5 ZeRO 1 · micro 16 · accum 1 started",
        "  rank 1 step 3: 0.1000 s",
        "autoconf-launch: bounds",
    ]
    assert "bounds" not in show(said)


def test_a_crash_comes_with_its_sentence_and_the_last_lines() -> None:
    crashed = record(trial(1, 0, 1), failure_of(FailureKind.CRASHED, "rank 0 ended with code 1"))
    assert failure_lines(crashed) == [
        "trial 1 ZeRO 0 · micro 1 · accum 16 crashed: rank 0 ended with code 1 "
        "(its folder is z0_gas16_tmbspg1)",
        "  | Traceback [most]",
        "  | ValueError: no",
    ]
    assert failure_lines(RECORDS[2]) == [], "a full memory needs no log"


@pytest.mark.parametrize(
    ("behind", "width", "said"),
    [
        (0.1, 0.05, "is 10.5 % slower (+5.1 to +16.2 %)"),
        (math.log(1.9), 0.05, "is 90.0 % slower (+80.7 to +99.7 %)"),
        (math.log(2.1), 0.05, "is 2.1x slower (2 to 2.21x)"),
        (math.log(77.8), 0.05, "is 77.8x slower (74 to 81.8x)"),
        (math.log(250.0), 0.05, "is 250x slower (238 to 263x)"),
        (3.0, 1.2, "is 20.1x slower (6.05 to 66.7x)"),
        (0.1, 1.2, "inconclusive so far"),
        (0.1, math.inf, "inconclusive so far"),
    ],
)
def test_a_round_tells_how_far_behind_another_one_is(
    behind: float, width: float, said: str
) -> None:
    standings = (
        Standing(trial=trial(1, 0, 8), behind=0.0, width=0.0),
        Standing(trial=trial(2, 0, 16), behind=behind, width=width),
    )
    line = round_line(RoundFinished(number=2, elapsed_s=9.0, standings=standings))
    assert line.endswith(f"{BEST} leads; {OTHER} {said}")


def test_only_sentences_are_wrapped() -> None:
    table = "| a | b c d e f g h i j k |\n  trial  config of two words\n-----  -----------"
    command = "  autoconf-launch train.py --config optimal.json"
    wrapped = wrap_sentences(f"One two three four five.\n\n{table}\n{command}", 12)
    assert wrapped == f"One two\nthree four\nfive.\n\n{table}\n{command}"


@pytest.mark.parametrize(
    ("grade", "activation_bytes", "said"),
    [
        (Grade.OPAQUE, 0, "(2 M trainable), activations and FLOPs unknown"),
        (Grade.MEASURED, 1000, "activations per sample [measured], FLOPs could not be counted"),
    ],
)
def test_what_is_not_known_of_a_model_is_not_said_to_be_nothing(
    grade: Grade, activation_bytes: int, said: str
) -> None:
    more: dict[str, Any] = {"activation_bytes": activation_bytes} if activation_bytes else {}
    block = BlockSpec(name="model", count=1, parameters=2_000_000, **more)
    assert profile_line(ModelSpec(grade=grade, blocks=(block,)), 3.0).endswith(said)


def test_a_second_launch_that_crashes_alike_does_not_repeat_the_log() -> None:
    crashed = next(r for r in RECORDS if r.failure and r.failure.kind is FailureKind.CRASHED)
    event = TrialFinished(record=crashed, best=None, elapsed_s=1.0)
    shown = show((event, event))
    assert shown.count("rank 1 ended with code 1") == 2
    assert shown.count("ValueError: no") == 1
