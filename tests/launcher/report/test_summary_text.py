from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

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
from autoconf_launch.autotuner.space import AutotuningSettings, Record
from autoconf_launch.core import Aside, Asides, Edit, Failure, FailureKind, WentOn
from autoconf_launch.launcher.report import (
    crash_text,
    details_text,
    result_text,
    summary_document,
    summary_text,
    table_text,
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


def test_a_table_ends_with_duration_and_count_also_for_whole_seconds() -> None:
    assert table_text(summary(60.0)).splitlines()[-1] == (
        "Tuning completed in 0:01:00. Total number of experiments: 6."
    )


def test_each_row_of_the_table_has_four_cells() -> None:
    table = table_text(summary()).partition("\n\n")[0]
    assert {len(re.findall(r"\|", line)) for line in table.splitlines()} == {5}


def test_the_findings_are_as_they_were_looked_at() -> None:
    command = "autoconf-launch train.py --config optimal.json"
    assert result_text(change(meaning=None), EDITS, command, "results") == golden("findings.txt")


def test_the_document_says_what_changes() -> None:
    changes = summary_document(summary(), EDITS, "command")["changes"]
    assert changes == [
        {"key": "zero_optimization.stage", "before": None, "after": 1},
        {"key": "train_batch_size", "before": "auto", "after": 32},
    ]


def test_the_document_has_what_launches_again_showed() -> None:
    found = replace(summary(), notes=("The machine was slower.",))
    assert summary_document(found, EDITS, "command")["findings"] == ["The machine was slower."]


def tell(**fields: Any) -> str:
    return result_text(change(**fields), (), "command", "results")


def details(**fields: Any) -> str:
    return details_text(change(**fields))


def test_the_number_of_rounds_is_said_with_the_gain() -> None:
    assert tell(paired=True, rounds=2).splitlines()[0].endswith(", 2 playoff rounds).")


OWN, RIVAL = RECORDS[0], RECORDS[3]


def tie(verdict: TuneVerdict, **fields: Any) -> list[str]:
    """What is said if the user's own configuration stays, with another one beside it."""
    alike: dict[str, Any] = {"winner": OWN, "speed_up": None, "ties": ((RIVAL.trial.name, 0.02),)}
    return tell(verdict=verdict, **alike | fields).splitlines()


def test_a_tie_with_your_own_configuration_is_no_measurable_gain() -> None:
    lines = tie(TuneVerdict.TIE, rounds=4, width=0.05)
    assert lines[0] == "No measurable gain: your configuration is as fast."
    assert "Tied with the best, within noise: ZeRO 1 · micro 8 · accum 2 (2 % slower)." in lines


def test_an_inconclusive_playoff_says_what_it_can_show_and_what_to_do() -> None:
    lines = tie(TuneVerdict.INCONCLUSIVE, rounds=2, width=0.3)
    assert lines[0].startswith("No gain was shown: these measurements are too few or too noisy")
    said = "Not separated from it by 2 playoff rounds, which show differences above 35 %: ZeRO 1"
    assert any(line.startswith(said) for line in lines)
    assert "A quieter machine or --effort thorough can separate them." in lines


def test_single_trials_that_decide_nothing_ask_for_rounds() -> None:
    lines = tie(TuneVerdict.INCONCLUSIVE, width=0.2)
    assert any(line.startswith("Not separated from it by single trials") for line in lines)
    wanted = "The same command with a longer --budget goes on from here and compares them"
    assert any(line.startswith(wanted) for line in lines)


def test_an_interval_without_end_has_no_percentage() -> None:
    lines = tie(TuneVerdict.INCONCLUSIVE, rounds=1, width=math.inf)
    assert any(line.startswith("Not separated from it by 1 playoff round: ") for line in lines)


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


def test_your_own_is_called_the_fastest_only_where_no_trial_was_faster() -> None:
    assert told_of_own(None) == "No gain: your configuration is the fastest measured."


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"failed": (replace(LOST, trial=RECORDS[3].trial),)}, "failed in the playoff"),
        (
            {"rounds": 1, "played": (RECORDS[0], RECORDS[3])},
            "was slower than yours in the playoff, which measures both again",
        ),
        (
            {
                "soak": SoakReport(
                    steps=5,
                    memory_share=0.5,
                    passed=True,
                    refused=(Refusal(name=RECORDS[3].trial.name, failure=None),),
                )
            },
            "did not pass its verification run",
        ),
    ],
)
def test_a_faster_trial_that_did_not_win_is_named_with_its_reason(
    fields: dict[str, Any], why: str
) -> None:
    assert told_of_own(RECORDS[3], **fields) == (
        f"No gain: ZeRO 1 · micro 8 · accum 2 was faster in its trial, but {why}."
    )


def test_a_tie_with_a_trial_that_was_faster_names_it() -> None:
    rival = RECORDS[3]
    ties = ((rival.trial.name, 0.0),)
    first = told_of_own(
        rival, verdict=TuneVerdict.TIE, rounds=2, ties=ties, played=(RECORDS[0], rival)
    )
    assert first == (
        "No measurable gain: ZeRO 1 · micro 8 · accum 2 was faster in its trial, but the playoff, "
        "which measures both again, does not distinguish it from yours."
    )


def test_a_faster_trial_without_a_reason_leaves_the_answer_open() -> None:
    assert told_of_own(RECORDS[3]).startswith("No gain was shown: these measurements are too few")


def test_a_trial_slower_than_yours_takes_nothing_from_it() -> None:
    slower = record(trial(1, 0, 8), steps_of(0.33))
    assert told_of_own(slower) == told_of_own(None)


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


def test_a_gain_in_a_wide_interval_has_no_factor() -> None:
    line = tell(speed_up=SpeedUp(ratio=28.9, low=1.02, high=820.56)).splitlines()[0]
    assert line.endswith(
        ", faster than your configuration (these measurements are too noisy to give a factor)."
    )


def test_where_your_own_configuration_failed_in_the_playoff_the_answer_begins_with_it() -> None:
    own = replace(RECORDS[4], trial=RECORDS[0].trial)
    first = tell(failed=(own,), rounds=1).splitlines()[0]
    assert first == (
        "Your configuration failed in the playoff (crashed: rank 1 ended with code 1)."
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((1.28, 1.09, 1.5), "1.28x faster than A (95 % interval 1.09 to 1.50x)"),
        ((0.8, 0.7, 0.9), "20 % slower than A (95 % interval of the speed ratio 0.70 to 0.90x)"),
        (
            (1.1, 0.9, 1.3),
            "not shown to be faster than A (95 % interval of the speed ratio 0.90 to 1.30x)",
        ),
        (
            (5.0, 0.1, 250.0),
            "not shown to be faster than A (these measurements are too noisy to give a factor)",
        ),
        (
            (5.0, 0.0, math.inf),
            "not shown to be faster than A (they met in too few rounds for an interval)",
        ),
        ((0.05, 0.001, 0.9), "slower than A (these measurements are too noisy to give a factor)"),
    ],
)
def test_a_ratio_is_told_as_far_as_its_interval_shows_it(
    found: tuple[float, float, float], text: str
) -> None:
    ratio, low, high = found
    assert speed_up_text(SpeedUp(ratio=ratio, low=low, high=high), "A") == text


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


def test_each_tie_comes_with_how_much_slower_it_was() -> None:
    names = tuple(done.trial.name for done in RECORDS[:2])
    text = tell(
        ties=((names[0], 0.0), (names[1], 0.0861776)), rounds=2, verdict=TuneVerdict.WINNER
    )
    ties = "ZeRO 0 · micro 1 · accum 16, ZeRO 0 · micro 8 · accum 2 (9 % slower)"
    assert f"Tied with the best, within noise: {ties}." in text.splitlines()


def test_what_was_left_out_is_said_after_what_could_still_be_gained() -> None:
    lines = details(optimality_bound=BOUND, skipped=LEFT_OUT).splitlines()
    assert lines[lines.index(BOUND_TEXT) + 1] == LEFT_OUT_TEXT


def test_what_was_left_out_is_said_of_a_search_that_was_good_enough_too() -> None:
    enough = StopReason(kind=StopKind.GOOD_ENOUGH, bound=BOUND)
    text = details(stop=enough, optimality_bound=BOUND, skipped=LEFT_OUT)
    assert (text.count(BOUND_TEXT), text.count(LEFT_OUT_TEXT)) == (1, 1)


def test_the_document_says_what_was_left_out() -> None:
    found = replace(summary(), optimality_bound=BOUND, skipped=LEFT_OUT)
    assert summary_document(found, EDITS, "command")["left_out"] == LEFT_OUT_TEXT


def test_the_document_says_why_the_search_ended() -> None:
    stop = StopReason(kind=StopKind.GOOD_ENOUGH, bound=BOUND)
    assert summary_document(replace(summary(), stop=stop), EDITS, "command")["stop"] == {
        "kind": "good_enough",
        "sentence": f"Good enough: {BOUND_TEXT}",
        "log_tail": [],
    }


def verify(asides: Asides | None, **changed: Any) -> str:
    """What is said of a verification run of 50 steps."""
    soak = SoakReport(steps=50, memory_share=0.01, refused=(), passed=True, asides=asides)
    return verification_text(replace(soak, **changed))


def beside(**seen: Any) -> str:
    return verify(Asides(**seen))


def test_a_verification_run_says_its_steps_memory_and_end() -> None:
    assert beside(longest_batch=True, went_on=WentOn.END) == (
        "Verification run of the winner: 50 steps, peak memory 1 %, the script ran to its end; "
        "the last step used the longest batch seen. Not exercised: evaluation, checkpointing."
    )


def test_a_verification_run_says_what_it_exercised() -> None:
    seen = beside(evaluations=1, evaluation_batches=8, checkpoints=1, saved_bytes=1_300_000_000)
    assert "Exercised: 1 evaluation (8 batches), 1 checkpoint (1.3 GB)." in seen
    assert seen.endswith("Not exercised: what the script does after its steps.")


def test_an_evaluation_that_was_not_waited_for_is_said() -> None:
    seen = beside(evaluations=1, evaluation_batches=8, under_way=Aside.EVALUATION)
    assert "8 batches of an evaluation that did not end in its time" in seen


def test_a_script_that_ended_as_its_data_was_ended_early_did_not_run_to_completion() -> None:
    assert beside(longest_batch=True, went_on=WentOn.EPOCH_END) == (
        "Verification run of the winner: 50 steps, peak memory 1 %, its data was then cut off, "
        "as at the end of an epoch, and the script finished normally; the last step used the "
        "longest batch seen. Not exercised: evaluation, checkpointing."
    )


def test_data_that_ended_after_the_steps_is_said() -> None:
    seen = beside(evaluations=1, evaluation_batches=8, went_on=WentOn.EPOCH)
    assert "1 %, its data was then cut off, as at the end of an epoch." in seen
    assert seen.endswith(
        "Not exercised: checkpointing, what the script does after its last epoch."
    )


def test_a_script_that_failed_as_its_data_ended_is_said() -> None:
    seen = beside(went_on=WentOn.EPOCH, broke="StopIteration")
    assert seen.endswith("could not continue without its data (StopIteration).")


CUT = Asides(went_on=WentOn.EPOCH, broke="KeyError: 'a'")
PASSED = SoakReport(steps=50, memory_share=0.01, refused=(), passed=True, asides=CUT)


def test_a_crash_after_the_steps_is_said_with_its_place() -> None:
    end = "after 50 steps: KeyError: 'a'. Fix this before you train, unless the script fails only "
    assert f"in its verification run, {end}" in crash_text(PASSED)
    evaluating = replace(PASSED, asides=replace(CUT, broke_in=Aside.EVALUATION))
    assert f"in its verification run, in or after its evaluation, {end}" in crash_text(evaluating)


def test_a_script_that_lacks_only_its_data_did_not_crash() -> None:
    assert crash_text(replace(PASSED, asides=replace(CUT, broke="StopIteration"))) == ""


@pytest.mark.parametrize(
    ("kind", "passed", "is_crash"),
    [
        (FailureKind.CRASHED, False, True),
        (FailureKind.CRASHED, True, False),
        (FailureKind.OUT_OF_MEMORY, False, False),
    ],
)
def test_a_crash_leads_where_nothing_else_passed(
    kind: FailureKind, passed: bool, is_crash: bool
) -> None:
    refusal = Refusal(name="z0", failure=Failure(kind=kind, detail="KeyError: 'a'"))
    soak = SoakReport(steps=0, memory_share=None, refused=(refusal,), passed=passed)
    assert (
        "crashed in the verification run of z0: KeyError: 'a'." in crash_text(soak)
    ) is is_crash


def test_one_step_is_said_to_be_one() -> None:
    assert "winner: 1 step, " in verify(None, steps=1)


def test_steps_were_all_made_before_an_evaluation_after_them() -> None:
    seen = beside(evaluations=1, under_way=Aside.EVALUATION, went_on=WentOn.EPOCH)
    assert ("at least" in seen, "at least" in beside(under_way=Aside.EVALUATION)) == (False, True)


@pytest.mark.parametrize("longest", [True, False])
def test_the_longest_batch_is_claimed_only_where_it_was_taken(longest: bool) -> None:
    assert ("longest batch" in beside(longest_batch=longest)) is longest


def test_where_nobody_looked_nothing_is_said_of_evaluations() -> None:
    sentence = verify(None)
    assert ("evaluation" in sentence, "checkpoint" in sentence) == (False, False)


def test_a_run_that_was_not_passed_says_its_error() -> None:
    assert verify(None, passed=False) == ("No measured configuration passed its verification run.")


def test_the_advice_names_both_batches_and_the_factor() -> None:
    advice = LearningRateAdvice(factor=2.0, before=16, after=64, linear=False)
    assert advice_text(advice) == (
        "The global batch changes from 16 to 64: unless the script scales the learning rate "
        "itself, multiply it by 2 (square root of the ratio)."
    )
    kept, scaled = replace(advice, by_script=1.0), replace(advice, by_script=4.0)
    assert advice_text(kept).endswith(
        "64: multiply the learning rate by 2 (square root of the ratio)."
    )
    assert advice_text(scaled).endswith("64; the script multiplies its learning rate by 4 itself.")
    document = summary_document(replace(summary(), learning_rate=advice), EDITS, "command")
    assert document["learning_rate"] == {"factor": 2.0, "sentence": advice_text(advice)}


def test_a_search_that_patience_ended_does_not_call_itself_complete() -> None:
    skipped = Skipped(
        candidates=19, needs_more_memory=0, above_what_ran=0, smaller=0, open=9,
        beyond_saturation=0, patience=5,
    )  # fmt: skip
    assert (
        "The search ended after 5 trials in a row that were no better (tuner_early_stopping); the "
        "best of what is left is expected to gain 4 %."
    ) in tell(expected_gain=0.04, skipped=skipped).splitlines()


@pytest.mark.parametrize(
    ("gain", "sentence"),
    [
        (0.02, "Search complete: nothing left is expected to be more than 2 % faster."),
        (0.09, "Search complete: the best of what is left is expected to gain 9 %."),
        (None, "Search complete."),
    ],
)
def test_a_search_that_is_complete_says_what_is_left_to_gain(
    gain: float | None, sentence: str
) -> None:
    assert sentence in tell(expected_gain=gain).splitlines()
