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
    Resolution,
    SoakReport,
    SpeedGap,
    Summary,
    summarise_launches,
)
from autoconf_launch.autotuner.playoff.soak import with_step_s
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
from autoconf_launch.launcher.report.summary import (
    advice_text,
    first_part,
    resolution_text,
    speed_text,
)
from autoconf_launch.launcher.report.verification import verification_text

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
    """The summary with other values, or with other values in its decision."""
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


@pytest.mark.parametrize(
    ("in_turn", "how"), [(True, ", 2 playoff rounds in turn)."), (False, ", 2 playoff rounds).")]
)
def test_turns_are_said_of_rounds_that_had_them(in_turn: bool, how: str) -> None:
    line = tell(paired=True, rounds=2, in_turn=in_turn).splitlines()[0]
    assert line.endswith(how)


@pytest.mark.parametrize("where", ["ties", "near"])
def test_where_your_own_configuration_is_a_tie_the_first_line_says_so(where: str) -> None:
    own = (RECORDS[0].trial.name,)
    first = tell(**{"ties": (), "near": (), where: own}, rounds=2).splitlines()[0]
    assert first == "No measurable gain: your configuration is as fast."


@pytest.mark.parametrize(("rounds", "width"), [(0, 0.2), (2, 2.0)])
def test_what_cannot_be_told_is_not_called_as_fast(rounds: int, width: float) -> None:
    own = (RECORDS[0].trial.name,)
    wide = Resolution(rounds=2, round_s=6.2, width=width, wanted=0.03, further=None)
    first = tell(ties=own, near=(), rounds=rounds, resolution=wide).splitlines()[0]
    assert first.startswith("No gain was shown: these measurements are too few or too noisy")


def test_a_complete_search_is_not_said_beside_what_cannot_be_told() -> None:
    noisy = Resolution(rounds=2, round_s=6.2, width=2.0, wanted=0.03, further=None)
    assert "Search complete" in tell(expected_gain=0.01)
    assert "Search complete" not in tell(
        expected_gain=0.01, ties=("z",), rounds=2, resolution=noisy
    )


def test_what_was_faster_only_in_its_trial_is_called_unconfirmed() -> None:
    own, rival = RECORDS[0], RECORDS[3].trial.name
    text = tell(winner=own, ties=(rival,), near=(), behind=((rival, -0.476),))
    assert (
        "Unconfirmed, as faster only in a single trial: ZeRO 1 · micro 8 · accum 2 (1.61x "
        "faster). The same command with a longer --budget goes on from here"
    ) in text


def test_a_crash_leads_the_answer_and_the_command_waits_for_it() -> None:
    lines = tell(soak=PASSED).splitlines()
    assert lines[0].startswith("The script crashed in its verification run, after 50 steps: Key")
    assert lines[lines.index("  command") - 1] == "Train with it once the script is fixed:"


def told_of_own(faster: Record | None, **fields: Any) -> str:
    """The first line if the user's own configuration stays and nothing is a tie with it."""
    alone: dict[str, Any] = {"ties": (), "near": (), "winner": RECORDS[0], "faster": faster}
    return tell(**alone | fields).splitlines()[0]


def test_your_own_is_called_the_fastest_only_where_no_trial_was_faster() -> None:
    assert told_of_own(None) == "No gain: your configuration is the fastest measured."


def test_a_trial_that_was_far_slower_is_not_called_as_fast_however_noisy_it_was() -> None:
    name = RECORDS[3].trial.name
    noisy: dict[str, Any] = {"rounds": 0, "ties": (name,), "speed_up": None}
    near, far = (
        tell(winner=RECORDS[0], near=(), behind=((name, x),), **noisy) for x in (0.1, 1.0)
    )
    assert "by single trials alone" in near
    assert "by single trials alone" not in far
    assert far.startswith("No gain: your configuration was the fastest in the search.")


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
    first = told_of_own(rival, rounds=2, ties=(rival.trial.name,), played=(RECORDS[0], rival))
    assert first == (
        "No measurable gain: ZeRO 1 · micro 8 · accum 2 was faster in its trial, but the playoff, "
        "which measures both again, does not distinguish it from yours."
    )


def test_a_faster_trial_without_a_reason_leaves_the_answer_open() -> None:
    assert told_of_own(RECORDS[3]).startswith("No gain was shown: these measurements are too few")


def test_a_verification_run_slower_than_other_trials_is_not_the_fastest_measured() -> None:
    slower = record(trial(1, 0, 8), steps_of(0.33))
    assert told_of_own(slower) == "No gain: your configuration was the fastest in the search."


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("where", ["ties", "near"])
def test_what_was_far_slower_is_no_tie_after_a_playoff_either(where: str, rounds: int) -> None:
    name = RECORDS[1].trial.name
    alike: dict[str, Any] = {"ties": (), "near": (), where: (name,), "rounds": rounds}
    close, far = (tell(**alike, behind=((name, math.log(x)),)) for x in (1.2, 1.49))
    assert "(20 % slower)" in close
    assert "slower" not in far


@pytest.mark.parametrize("ties", [(), (RECORDS[1].trial.name,)])
@pytest.mark.parametrize(("low", "high"), [(0.001, 866002.61), (0.9, 30.0), (0.0, math.inf)])
def test_an_interval_on_both_sides_of_one_shows_no_gain(
    low: float, high: float, ties: tuple[str, ...]
) -> None:
    found = SpeedUp(ratio=5.0, low=low, high=high)
    text = tell(speed_up=found, ties=ties, near=(), rounds=1, paired=True)
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


@pytest.mark.parametrize("where", ["ties", "near"])
def test_no_gain_has_a_percentage_where_the_outcome_is_a_tie(where: str) -> None:
    own, rival = RECORDS[0].trial.name, RECORDS[1].trial.name
    alike: dict[str, Any] = {"ties": (), "near": (), where: (own, rival)}
    text = tell(**alike, behind=((own, 0.0), (rival, -0.476)), rounds=2, paired=True)
    first, best, *_ = text.splitlines()
    assert first.startswith("No gain was shown: these measurements are too few or too noisy")
    assert best == "Best: ZeRO 1 · micro 8 · accum 2, 500 samples/s (64.0 ms per step)."
    assert "ZeRO 0 · micro 8 · accum 2" in text
    assert "% faster" not in text


def test_what_a_list_became_is_not_called_a_change_of_your_configuration_where_that_wins() -> None:
    edits = [Edit(("zero_optimization", "stage"), [0, 2], 0)]
    ours = change(winner=RECORDS[0], ties=(), near=(), speed_up=None)
    line = "Values chosen for what your configuration leaves open:"
    assert line in result_text(ours, edits, "command", "results").splitlines()
    other = result_text(change(), edits, "command", "results").splitlines()
    assert "Changes to your configuration:" in other
    assert line not in other


def test_a_rival_within_the_precision_leaves_your_configuration_as_fast() -> None:
    own = RECORDS[0].trial.name
    first = tell(ties=(own,), near=(), behind=((own, -0.02),), rounds=2).splitlines()[0]
    assert first == "No measurable gain: your configuration is as fast."


def test_flops_above_the_peak_are_said_below_the_answer_and_only_there() -> None:
    wrong = "micro 8: 600 TFLOP/s per GPU cannot be right."
    found = change(impossible=wrong)
    assert wrong in result_text(found, [], "command", "results").splitlines()
    assert wrong not in details_text(found)
    assert wrong in str(summary_document(found, [], "command")["findings"])
    assert "cannot be right" not in result_text(summary(), [], "command", "results")


def test_a_rich_result_has_at_most_25_lines() -> None:
    names = tuple(f"z1_gas1_tmbspg{micro}" for micro in range(40))
    rich = change(
        ties=names,
        near=names,
        resolution=Resolution(rounds=2, round_s=6.2, width=0.2, wanted=0.03, further=40),
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


def gap(measured_s: float, verified_s: float, *loads: float | None, turns: bool = False) -> str:
    """Text of two speeds of the winner, of which only the second is shown."""
    found = SpeedGap(
        measured_s=measured_s,
        verified_s=verified_s,
        measured_load=loads[0] if loads else None,
        verified_load=loads[1] if loads else None,
        in_turn=turns,
    )
    winner = summary().decision.winner
    assert winner is not None
    told = tell(gap=found, rounds=2, played=(with_step_s(winner, verified_s),))
    return next(line for line in told.splitlines() if "speed;" in line)


def test_two_speeds_come_with_the_load_that_explains_them() -> None:
    assert gap(0.064, 0.128, 1.1, 3.8) == (
        "That is the verification run's speed; its launches in the playoff were faster (64.0 ms "
        "per step), probably because of other work on this machine (load average 1.1 before, 3.8 "
        "in the verification run)."
    )


def test_beside_a_ratio_of_single_trials_stands_the_speed_of_these() -> None:
    loads = {"measured_load": None, "verified_load": None}
    found = SpeedGap(measured_s=0.064, verified_s=0.128, in_turn=False, **loads)
    lines = tell(gap=found, rounds=0, played=()).splitlines()
    assert f", {speed_text(summary())}" in lines[0]
    assert (
        "That is the speed in the search; the verification run was slower (0.128 s per step), for "
        "no known reason: launches minutes apart can differ."
    ) in lines


@pytest.mark.parametrize("loads", [(), (2.0, 2.1), (9.5, 10.3), (3.8, 1.1)])
def test_a_load_that_does_not_explain_a_slower_run_is_not_named(loads: tuple[float, ...]) -> None:
    assert gap(0.064, 0.128, *loads, turns=True).endswith(
        "were faster (64.0 ms per step), for no known reason: launches minutes apart can differ."
    )


def test_launches_in_turn_explain_a_verification_run_that_is_faster() -> None:
    assert gap(0.128, 0.1, turns=True).endswith(
        "were slower (0.128 s per step), as they take turns and start each one with cold caches."
    )
    assert "for no known reason" in gap(0.128, 0.064, turns=True)


def test_each_rival_comes_with_how_much_slower_it_was() -> None:
    names = tuple(done.trial.name for done in RECORDS[:2])
    found: dict[str, Any] = {"ties": names[:1], "near": names[1:]}
    found["behind"] = ((names[0], 0.0), (names[1], 0.0861776))
    text = tell(**found, rounds=2)
    assert "\nTied with the best, within noise: ZeRO 0 · micro 1 · accum 16.\n" in text
    once = "Possibly as fast, measured only once: ZeRO 0 · micro 8 · accum 2 (9 % slower)."
    assert once in text.splitlines()
    alone = "Possibly as fast, by single trials alone: ZeRO 0 · micro 1 · accum 16."
    assert alone in tell(**found, rounds=0).splitlines()


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
    """Text of a verification run of 50 steps."""
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


@pytest.mark.parametrize(
    ("width", "further", "sentence"),
    [
        (0.0488, 4, "above 5 %; to resolve 3 %, allow 20 s more (--effort thorough)."),
        (0.0198, 0, "above 2 %."),
        (0.9, None, "above 146 %; this machine is too noisy to resolve 3 %."),
        (float("inf"), 2, "too noisy to rank them (2 rounds)."),
    ],
)
def test_it_says_what_the_playoff_can_detect(
    width: float, further: int | None, sentence: str
) -> None:
    found = Resolution(rounds=2, round_s=5.0, width=width, wanted=0.0296, further=further)
    assert resolution_text(Decision(ties=("t1",), resolution=found)).endswith(sentence)


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
