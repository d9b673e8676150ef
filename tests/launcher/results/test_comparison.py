from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX, FINAL_SUFFIX
from autoconf_launch.autotuner.space import Record
from autoconf_launch.launcher.results import (
    Comparison,
    Difference,
    Fingerprint,
    SpeedVerdict,
    compare_results,
    read_results,
    training_differences,
)

from ..report.fixed import PRINT, RECORDS, record, steps_of, trial, write_folder


def compare(
    folder: Path, b: Sequence[Record], a: Sequence[Record] = RECORDS, print_: Fingerprint = PRINT
) -> Comparison:
    one = read_results(write_folder(folder / "a", a))
    return compare_results(one, read_results(write_folder(folder / "b", b, print_)))


@pytest.mark.parametrize(
    ("step_s", "spread", "ratio", "verdict"),
    [
        (0.16, 0.0, 2.0, SpeedVerdict.B),
        (0.64, 0.0, 0.5, SpeedVerdict.A),
        (0.31, 0.2, 0.32 / 0.31, SpeedVerdict.TIE),
    ],
)
def test_a_ratio_is_of_b_over_a_and_what_noise_explains_is_a_tie(
    tmp_path: Path, step_s: float, spread: float, ratio: float, verdict: SpeedVerdict
) -> None:
    pair = compare(tmp_path, [record(trial(0, 0, 1), steps_of(step_s, spread=spread))]).pairs[0]
    assert pair.ratio is not None
    assert pair.ratio.ratio == pytest.approx(ratio, rel=0.05)
    assert pair.ratio.low < pair.ratio.ratio < pair.ratio.high
    assert pair.verdict is verdict


def repeats(of: Record, *seconds: float) -> tuple[Record, ...]:
    """Its step when it was launched again after all trials."""
    name, after = f"{of.trial.name}{AGAIN_SUFFIX}", len(RECORDS)
    return tuple(
        record(replace(of.trial, name=name, attempt=attempt, again=after), steps_of(step_s))
        for attempt, step_s in enumerate(seconds, 1)
    )


@pytest.mark.parametrize("noisy", ["a", "b"])
def test_two_runs_of_a_noisy_machine_are_compared_by_the_noise_they_saw(
    tmp_path: Path, noisy: str
) -> None:
    a: tuple[Record, ...] = RECORDS
    b: tuple[Record, ...] = (record(RECORDS[0].trial, steps_of(0.25)), *RECORDS[1:])
    assert compare(tmp_path / "quiet", b, a).pairs[0].verdict is SpeedVerdict.B
    shaken = repeats(RECORDS[0], 0.45, 0.22, 0.4, 0.2, 0.5)
    a, b = ((*a, *shaken), b) if noisy == "a" else (a, (*b, *shaken))
    assert compare(tmp_path / "noisy", b, a).pairs[0].verdict is SpeedVerdict.TIE


def test_a_failed_candidate_has_no_ratio(tmp_path: Path) -> None:
    pair = compare(tmp_path, [record(RECORDS[2].trial, steps_of(0.1))]).pairs[0]
    assert (pair.ratio, pair.verdict) == (None, None)


def test_candidates_of_one_side_are_named(tmp_path: Path) -> None:
    found = compare(tmp_path, [RECORDS[0], record(trial(1, 3, 1), steps_of(0.1))])
    assert found.only_a == tuple(done.trial.name for done in RECORDS[1:])
    assert found.only_b == ("z3_gas16_tmbspg1",)


def test_of_two_attempts_the_last_one_counts(tmp_path: Path) -> None:
    again = record(replace(RECORDS[2].trial, attempt=2), steps_of(0.1))
    found = compare(tmp_path, [again], [*RECORDS, again])
    assert found.pairs[0].verdict is SpeedVerdict.TIE


CHANGES = (
    (
        replace(PRINT, script="f" * 64),
        Difference(part="script", a="the script", b="the script, edited"),
    ),
    (
        replace(PRINT, arguments=("--data", "y")),
        Difference(part="arguments", a="--data x", b="--data y"),
    ),
    (
        replace(PRINT, config="f" * 64),
        Difference(part="config", a="as it was", b="other files, variables or profiled steps"),
    ),
    (
        replace(PRINT, hardware=("H100, limit None",)),
        Difference(part="hardware", a="2 x cpu (x86_64), limit None", b="1 x H100, limit None"),
    ),
    (
        replace(PRINT, versions=(("python", "3.11.7"),)),
        Difference(part="version of torch", a="2.13.0", b=None),
    ),
)


@pytest.mark.parametrize(("changed", "expected"), CHANGES)
def test_each_part_of_the_fingerprint_is_told(
    tmp_path: Path, changed: Fingerprint, expected: Difference
) -> None:
    assert compare(tmp_path, RECORDS, print_=changed).differences == (expected,)


def test_a_changed_configuration_names_its_keys(tmp_path: Path) -> None:
    documents = {"a": {"x": 1, "gradient_clipping": 1.0}, "b": {"x": 1}}
    for name, document in documents.items():
        profile = tmp_path / name / "profile_model_info"
        profile.mkdir(parents=True)
        (profile / "ds_config.json").write_text(json.dumps(document))
    found = compare(tmp_path, RECORDS, print_=replace(PRINT, config="other"))
    assert found.differences == (Difference(part="config gradient_clipping", a="1.0", b=None),)


def test_different_metrics_are_told_and_throughput_compared(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "env.json").write_text('{"metric": "latency"}')
    found = compare(tmp_path, [])
    assert found.differences == (Difference(part="metric", a="throughput", b="latency"),)
    assert found.objective.name == "throughput"


def describe(folder: Path, script: str, parameters: int, micro: int = 16) -> Path:
    """A folder that says what was trained."""
    first = record(trial(0, 0, micro), steps_of(0.1))
    layout = replace(first.trial.candidate.layout, accumulation=1)
    candidate = replace(first.trial.candidate, layout=layout)
    write_folder(folder, [replace(first, trial=replace(first.trial, candidate=candidate))])
    (folder / "env.json").write_text(json.dumps({"metric": "throughput", "script": script}))
    (folder / "profile_model_info").mkdir()
    blocks = [{"count": 2, "parameters": parameters // 2}]
    (folder / "profile_model_info" / "model_info.json").write_text(json.dumps({"blocks": blocks}))
    return folder


BEFORE = ("train.py", 124_000_000, 16)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (BEFORE, []),
        (("other.py", *BEFORE[1:]), [("script", "train.py", "other.py")]),
        (
            ("train.py", 355_000_000, 16),
            [("model", "124,000,000 parameters", "355,000,000 parameters")],
        ),
        (("train.py", 124_000_000, 8), [("global batch", "32 samples", "16 samples")]),
    ],
)
def test_a_different_training_is_named_by_what_differs(
    tmp_path: Path, after: tuple[str, int, int], expected: list[tuple[str, str, str]]
) -> None:
    folders = (describe(tmp_path / "a", *BEFORE), describe(tmp_path / "b", *after))
    found = training_differences(*map(read_results, folders))
    assert [(one.part, one.a, one.b) for one in found] == expected


def test_what_a_folder_does_not_say_is_not_held_against_it(tmp_path: Path) -> None:
    old = write_folder(tmp_path / "old", [])
    assert not training_differences(
        read_results(old), read_results(describe(tmp_path / "b", *BEFORE))
    )


def test_a_script_of_the_same_name_was_edited(tmp_path: Path) -> None:
    folders = [describe(tmp_path / name, *BEFORE) for name in "ab"]
    (folders[1] / "journal.jsonl").unlink()
    write_folder(folders[1], RECORDS, replace(PRINT, script="f" * 64))
    found = compare_results(*map(read_results, folders)).differences
    assert found == (Difference(part="script", a="train.py", b="train.py, edited"),)


def final(of: Record, step_s: float) -> Record:
    what = replace(of.trial, name=f"{of.trial.name}{FINAL_SUFFIX}", final=True)
    return replace(of, trial=what, outcome=steps_of(step_s))


FINALS = (final(RECORDS[0], 0.32), final(RECORDS[1], 0.05), final(RECORDS[3], 0.1))


@pytest.mark.parametrize("b", [RECORDS[:2], [*RECORDS, *FINALS]], ids=["search", "rounds"])
def test_the_best_of_each_are_compared_though_they_differ(
    tmp_path: Path, b: Sequence[Record]
) -> None:
    best = compare(tmp_path, b).best
    assert best is not None
    assert (best.a.trial.name, best.b.trial.name) == ("z1_gas2_tmbspg8", "z0_gas2_tmbspg8")


def test_equal_folders_differ_in_nothing_and_without_a_measurement_none_is_the_best(
    tmp_path: Path,
) -> None:
    assert compare(tmp_path / "equal", RECORDS).differences == ()
    assert compare(tmp_path / "failed", RECORDS[2:3]).best is None
