from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from textwrap import indent
from typing import Any, cast

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import SpeedUp
from autoconf_launch.autotuner.playoff import (
    Decision,
    Launches,
    LearningRateAdvice,
    LossComparison,
    MeaningVerdict,
    Refusal,
    SoakReport,
    Summary,
    TuneVerdict,
    summarise_launches,
)
from autoconf_launch.autotuner.search import OptimalityBound, Skipped, StopKind, StopReason
from autoconf_launch.autotuner.space import AutotuningSettings, Prediction, Record
from autoconf_launch.core import Aside, Asides, Edit, Failure, FailureKind, WentOn
from autoconf_launch.launcher.report import (
    crash_text,
    details_text,
    result_text,
    summary_document,
    summary_text,
    table_text,
    trial_rows,
    trials_csv,
)
from autoconf_launch.launcher.report.cells import speed_up_text
from autoconf_launch.launcher.report.search import verification_text
from autoconf_launch.launcher.report.summary import advice_text, first_part

from .fixed import RECORDS, failure_of, golden, record, steps_of, trial

EDITS = (Edit(("zero_optimization", "stage"), None, 1), Edit(("train_batch_size",), "auto", 32))
BOUND = OptimalityBound(remaining=2, possible_gain_C=np.zeros(2), expected_gain=0.0)
BOUND_TEXT = "2 configurations left, provably slower than the best."
LEFT_OUT = Skipped(
    candidates=9, needs_more_memory=1, above_what_ran=0, smaller=0, open=2, beyond_saturation=0
)
LEFT_OUT_TEXT = (
    "3 of 9 configurations skipped: more memory than one that ran out of it: 1; left when the "
    "search ended: 2."
)
STOP = StopReason(kind=StopKind.EXPLORED, trials=6)
REFUSED = Refusal(name="t1", failure=None, memory_share=0.99)
LOST = record(trial(5, 2, 1), failure_of(FailureKind.TIMED_OUT, "did not end"))


def summary(duration_s: float = 1653.988447) -> Summary:
    launches = Launches(records=(*RECORDS, LOST))
    return summarise_launches(launches, AutotuningSettings(), duration_s=duration_s, stop=STOP)


def change(**fields: Any) -> Summary:
    """The summary with other values of its own or of its decision."""
    of_decision = {n: fields.pop(n) for n in [*fields] if n in Decision.__dataclass_fields__}
    found = summary()
    return replace(found, decision=replace(found.decision, **of_decision), **fields)


def test_the_table_is_in_the_form_of_the_deepspeed_autotuner() -> None:
    assert table_text(summary()) == golden("summary.txt")
    assert table_text(summary(60.0)).splitlines()[-1] == (
        "Tuning completed in 0:01:00. Total number of experiments: 6."
    )


def test_the_findings_are_as_they_were_looked_at() -> None:
    command = "autoconf-launch train.py --config optimal.json"
    assert result_text(change(meaning=None), EDITS, command, "results") == golden("findings.txt")


def tell(**fields: Any) -> str:
    return result_text(change(**fields), (), "command", "results")


def details(**fields: Any) -> str:
    return details_text(change(**fields))


OWN, RIVAL = RECORDS[0], RECORDS[3]


def tie(verdict: TuneVerdict, **fields: Any) -> list[str]:
    """What is said if the user's own configuration stays, with another one beside it."""
    of = "ties" if verdict is TuneVerdict.TIE else "undecided"
    alike: dict[str, Any] = {"winner": OWN, "speed_up": None, of: ((RIVAL.trial.name, 0.02),)}
    return tell(verdict=verdict, **alike | fields).splitlines()


def test_a_complete_search_is_not_said_beside_what_is_inconclusive() -> None:
    assert any("Search complete" in line for line in tie(TuneVerdict.TIE, expected_gain=0.01))
    noisy = tie(TuneVerdict.INCONCLUSIVE, expected_gain=0.01)
    assert not any("Search complete" in line for line in noisy)


def test_a_crash_leads_the_answer_and_the_command_waits_for_it() -> None:
    lines = tell(soak=PASSED).splitlines()
    assert lines[0].startswith("The script crashed in its verification run, after 50 steps: Key")
    assert lines[lines.index("  command") - 1] == "Train with it once the script is fixed:"


def told_of_own(faster: Record | None, **fields: Any) -> str:
    """The first line if the user's own configuration stays and nothing is a tie with it."""
    alone: dict[str, Any] = {
        "ties": (),
        "verdict": TuneVerdict.WINNER,
        "winner": OWN,
        "faster": faster,
    }
    return tell(**alone | fields).splitlines()[0]


@pytest.mark.parametrize("ties", [(), ((RECORDS[1].trial.name, 0.1),)])
@pytest.mark.parametrize(("low", "high"), [(0.001, 866002.61), (0.9, 30.0), (0.0, math.inf)])
def test_an_interval_on_both_sides_of_one_shows_no_gain(
    low: float, high: float, ties: tuple[tuple[str, float], ...]
) -> None:
    found = SpeedUp(ratio=5.0, low=low, high=high)
    text = tell(speed_up=found, ties=ties, rounds=1, paired=True)
    assert text.startswith("No gain was shown: these measurements are too few or too noisy")
    assert "faster than your configuration" not in text
    assert "interval" not in text


def test_what_a_list_became_is_not_called_a_change_of_your_configuration_where_that_wins() -> None:
    edits = [Edit(("zero_optimization", "stage"), [0, 2], 0)]
    ours = change(winner=RECORDS[0], ties=(), speed_up=None)
    line = "Values chosen for what your configuration leaves open:"
    assert line in result_text(ours, edits, "command", "results").splitlines()
    other = result_text(change(), edits, "command", "results").splitlines()
    assert "Changes to your configuration:" in other
    assert line not in other


def test_flops_above_the_peak_are_said_below_the_answer_and_only_there() -> None:
    wrong = "micro 8: 600 TFLOP/s per GPU cannot be right."
    found = change(impossible=wrong)
    assert wrong in result_text(found, [], "command", "results").splitlines()
    assert wrong not in details_text(found)
    assert wrong in str(summary_document(found, [], "command")["findings"])
    assert "cannot be right" not in result_text(summary(), [], "command", "results")


def test_a_rich_result_has_at_most_25_lines() -> None:
    names = tuple((f"z1_gas1_tmbspg{micro}", 0.0) for micro in range(40))
    rich = change(
        ties=names,
        undecided=names,
        rounds=1,
        verdict=TuneVerdict.INCONCLUSIVE,
        width=0.2,
        learning_rate=LearningRateAdvice(factor=2.0, before=16, after=64, linear=False),
        meaning=LossComparison(verdict=MeaningVerdict.SAME, worst=0.0, tolerance=0.001, steps=3),
        soak=SoakReport(
            steps=50, memory_share=0.5, refused=(REFUSED,) * 9, passed=True, step_s=9.0
        ),
        notes=("The machine was slower.",) * 9,
        impossible="micro 8: 600 TFLOP/s per GPU cannot be right.",
        optimality_bound=BOUND,
        skipped=LEFT_OUT,
    )
    edits = [Edit((f"key{number}",), number, number + 1) for number in range(30)]
    lines = result_text(rich, edits, "command", "results").splitlines()
    assert len(lines) <= 25
    assert lines[0].startswith(
        "Best: ZeRO 1 · micro 8 · accum 2, 500 samples/s (64.0 ms per step)"
    )
    answer = lines[: lines.index("")]
    assert answer[-2:] == ["Train with it:", "  command"]
    assert f"{BOUND_TEXT}\n{LEFT_OUT_TEXT}\n" in details_text(rich)


def test_the_first_part_of_the_kept_summary_ends_where_details_begin() -> None:
    kept = summary_text("| table |\n", "Best: x\n", "12 skipped.\n")
    assert kept.endswith("\nDetails\n12 skipped.\n")
    assert first_part(kept) == "Best: x\n\n| table |\n"


def test_the_winner_has_one_speed_in_its_headline_its_trial_and_its_parts() -> None:
    parts = (("samples", 0.04), ("update", 0.01))
    prediction = Prediction(peak_bytes=None, step_s=0.05, band=0.3, how="by hand", parts=parts)
    best = replace(RIVAL, prediction=prediction)
    verified = replace(best, outcome=steps_of(0.0718, spread=0.0))
    soak = replace(PASSED, asides=None, step_s=0.0718, phases=(("forward", 0.03),))
    found = change(winner=best, played=(verified,), soak=soak)
    document = summary_document(found, EDITS, "command")
    parts_of = cast("dict[str, Any]", document["step_parts"])
    assert parts_of["measured_step_s"] == pytest.approx(0.0718)
    assert sum(parts_of["measured_parts_s"].values()) == pytest.approx(0.0718)
    assert "measured 0.0718 s, 44 % more; measured in its verification" in details_text(found)
    assert "(71.8 ms per step)" in result_text(found, EDITS, "command", "results")
    rows = csv.DictReader(io.StringIO(trials_csv(trial_rows(found))))
    speeds = [row["latency_ms"] for row in rows if row["judged_in"] == "verification run"]
    assert [*map(float, speeds)] == pytest.approx([71.8])


def test_a_verification_run_beside_the_speed_of_a_trial_has_its_own_time() -> None:
    prediction = Prediction(
        peak_bytes=None, step_s=0.05, band=0.3, how="by hand", parts=(("samples", 0.05),)
    )
    soak = replace(PASSED, asides=None, step_s=0.0718, phases=(("forward", 0.03),))
    text = details_text(change(winner=replace(RIVAL, prediction=prediction), soak=soak))
    assert "measured 0.064 s, 28 % more; 0.0718 s in its verification run" in text


def test_what_was_left_out_is_said_after_what_could_still_be_gained() -> None:
    lines = details(optimality_bound=BOUND, skipped=LEFT_OUT).splitlines()
    assert lines[lines.index(BOUND_TEXT) + 1] == LEFT_OUT_TEXT


def test_the_document_says_why_the_search_ended_and_what_was_found_changed_and_left_out() -> None:
    stop = StopReason(kind=StopKind.GOOD_ENOUGH, bound=BOUND)
    found = replace(summary(), stop=stop, optimality_bound=BOUND, skipped=LEFT_OUT)
    found = replace(found, notes=("The machine was slower.",))
    document = summary_document(found, EDITS, "command")
    assert document["stop"] == {
        "kind": "good_enough",
        "sentence": f"Good enough: {BOUND_TEXT}",
        "log_tail": [],
    }
    assert document["left_out"] == LEFT_OUT_TEXT
    assert document["findings"] == ["The machine was slower."]
    assert document["changes"] == [
        {"key": "zero_optimization.stage", "before": None, "after": 1},
        {"key": "train_batch_size", "before": "auto", "after": 32},
    ]
    text = details_text(found)
    assert (text.count(BOUND_TEXT), text.count(LEFT_OUT_TEXT)) == (1, 1)


def verify(asides: Asides | None, **changed: Any) -> str:
    """What is said of a verification run of 50 steps."""
    soak = SoakReport(steps=50, memory_share=0.01, refused=(), passed=True, asides=asides)
    return verification_text(replace(soak, **changed))


CUT = Asides(went_on=WentOn.EPOCH, broke="KeyError: 'a'")
PASSED = SoakReport(steps=50, memory_share=0.01, refused=(), passed=True, asides=CUT)


def lead(*lines: int, **fields: Any) -> str:
    """Some lines of a result, else its first."""
    found = tell(**fields).splitlines()
    return "\n".join(found[at] for at in lines or (0,))


def own_first(verdict: TuneVerdict, **fields: Any) -> str:
    """The result without its command and its end if the user's own configuration stays."""
    lines = tie(verdict, **fields)
    return "\n".join((*lines[:2], *lines[lines.index("") + 1 : -2]))


def crash(kind: FailureKind, *, passed: bool) -> str:
    refusal = Refusal(name="z0", failure=Failure(kind=kind, detail="KeyError: 'a'"))
    return crash_text(SoakReport(steps=0, memory_share=None, refused=(refusal,), passed=passed))


def faster(ratio: float, low: float, high: float) -> str:
    return speed_up_text(SpeedUp(ratio=ratio, low=low, high=high), "A")


def results() -> Iterator[tuple[str, str]]:
    """First lines of a result, or the lines in question."""
    yield "rounds", lead(paired=True, rounds=2)
    yield "wide interval", lead(speed_up=SpeedUp(ratio=28.9, low=1.02, high=820.56))
    slow = replace(RECORDS[4], trial=OWN.trial)
    yield "own failed in the playoff", lead(failed=(slow,), rounds=1)
    ties = tuple(zip((r.trial.name for r in RECORDS[:2]), (0.0, 0.0861776), strict=True))
    yield "two ties", lead(-3, meaning=None, ties=ties, rounds=2, verdict=TuneVerdict.WINNER)
    apart = {"ties": ties[:1], "undecided": ties[1:], "width": 0.45, "rounds": 1}
    said = lead(-5, -4, -3, meaning=None, verdict=TuneVerdict.WINNER, **apart)
    yield "a tie, and a rival that one round does not separate", said
    yield "own tied", own_first(TuneVerdict.TIE, rounds=4, width=0.05)
    open_ends = {"rounds": (2, 0.3), "single trials": (0, 0.2), "no interval": (1, math.inf)}
    for name, (rounds, width) in open_ends.items():
        text = own_first(TuneVerdict.INCONCLUSIVE, rounds=rounds, width=width)
        yield f"inconclusive, {name}", text
    yield "own is best", told_of_own(None)
    yield "own is best, another trial slower", told_of_own(record(trial(1, 0, 8), steps_of(0.33)))
    yield "own is best, another trial faster", told_of_own(RIVAL)
    both = {"rounds": 2, "played": (OWN, RIVAL)}
    yield "faster in its trial, slower in rounds", told_of_own(RIVAL, **both)
    yield (
        "faster in its trial, failed",
        told_of_own(RIVAL, failed=(replace(LOST, trial=RIVAL.trial),)),
    )
    refused = Refusal(name=RIVAL.trial.name, failure=None)
    soak = SoakReport(steps=5, memory_share=0.5, passed=True, refused=(refused,))
    yield "faster in its trial, refused", told_of_own(RIVAL, soak=soak)
    tied = {"verdict": TuneVerdict.TIE, "ties": ((RIVAL.trial.name, 0.0),)}
    yield "faster in its trial, tied", told_of_own(RIVAL, **both, **tied)
    patience = replace(LEFT_OUT, open=9, patience=5)
    yield "patience", lead(-2, expected_gain=0.04, skipped=patience)
    levelled = replace(LEFT_OUT, open=9, beyond_saturation=9)
    yield "levelled off", lead(-2, expected_gain=0.04, skipped=levelled)
    for gain in (0.02, 0.09, None):
        yield f"complete, gain {gain}", lead(-2, expected_gain=gain)


def sentences() -> Iterator[tuple[str, str]]:
    """Factors, advice, verification runs."""
    for ratio in (
        (1.28, 1.09, 1.5),
        (0.8, 0.7, 0.9),
        (1.1, 0.9, 1.3),
        (5.0, 0.1, 250.0),
        (5.0, 0.0, math.inf),
        (0.05, 0.001, 0.9),
    ):
        yield f"ratio {ratio}", faster(*ratio)
    advice = LearningRateAdvice(factor=2.0, before=16, after=64, linear=False)
    yield "another batch", advice_text(advice)
    under_way = Asides(evaluations=1, evaluation_batches=8, under_way=Aside.EVALUATION)
    kept = Asides(evaluations=1, evaluation_batches=8, checkpoints=1, saved_bytes=1_300_000_000)
    for name, seen in {
        "to the end": Asides(longest_batch=True, went_on=WentOn.END),
        "to the end of cut data": Asides(longest_batch=True, went_on=WentOn.EPOCH_END),
        "to the end of an epoch": Asides(evaluations=1, went_on=WentOn.EPOCH),
        "without its data": Asides(went_on=WentOn.EPOCH, broke="StopIteration"),
        "exercised": kept,
        "evaluation under way": under_way,
        "evaluation under way after all steps": replace(under_way, went_on=WentOn.EPOCH),
    }.items():
        yield f"verified {name}", verify(seen)


def crashes() -> Iterator[tuple[str, str]]:
    """Verification runs that did not pass, or after which the script failed."""
    yield "verified by one step, asides not seen", verify(None, steps=1)
    yield "not verified", verify(None, passed=False)
    yield "crash", crash_text(PASSED)
    yield (
        "crash in evaluation",
        crash_text(replace(PASSED, asides=replace(CUT, broke_in=Aside.EVALUATION))),
    )
    yield "lack of data", crash_text(replace(PASSED, asides=replace(CUT, broke="StopIteration")))
    yield "crash of all", crash(FailureKind.CRASHED, passed=False)
    yield "crash of one", crash(FailureKind.CRASHED, passed=True)
    yield "out of memory", crash(FailureKind.OUT_OF_MEMORY, passed=False)


def test_each_case_reads_as_it_was_looked_at() -> None:
    text = "\n".join(
        f"{name}\n{indent(found or '-', '    ')}"
        for name, found in (*results(), *sentences(), *crashes())
    )
    assert f"{text}\n" == golden("sentences.txt")
