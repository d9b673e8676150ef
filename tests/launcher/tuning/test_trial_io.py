"""Tasks of ranks in a trial's files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import FEWEST_TIMED
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    FailedTrial,
    Measurement,
    Record,
    Trial,
    Turn,
    is_sure,
)
from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    ClusterSpec,
    Device,
    Failure,
    FailureKind,
    Grade,
    Layout,
    MemoryUse,
    Mode,
    ModelSpec,
    Node,
    RankTask,
)
from autoconf_launch.launcher.dialects import choose_dialect
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.results import ResultsPaths
from autoconf_launch.launcher.tuning import TrialFiles, impossible_flops
from autoconf_launch.launcher.tuning.trial_io import (
    clear_saved,
    needs_of,
    repeated_steps,
    soak_task,
)

from ..report.fixed import failure_of, record, steps_of

FINAL = Trial(
    number=1,
    name="t1_final",
    candidate=Candidate(layout=Layout(micro_batch=1)),
    space="z0",
    final=True,
)


TURN = Turn(next_name="t2_final", is_first=True, steps=8)


@pytest.mark.parametrize(
    ("turn", "timed", "steps"), [(None, 12, 12), (TURN, 12, 8), (None, 0, FEWEST_TIMED)]
)
def test_a_final_has_the_steps_of_its_turns_or_those_that_it_was_given_or_the_fewest(
    turn: Turn | None, timed: int, steps: int
) -> None:
    assert repeated_steps(replace(FINAL, turn=turn, timed_steps=timed)) == steps


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialFiles:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # torch sets it itself
    Path("train.py").write_text("")
    Path("config.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    Path("exps").mkdir()
    return trial_files(tmp_path)


def trial_files(folder: Path) -> TrialFiles:
    """The trials of the script in the current folder, on one CPU."""
    request = parse_request(["train.py", "--config", "config.json"])
    source = find_script_source(request)
    device = Device(name="cpu", memory_bytes=1)
    return TrialFiles(
        request=request,
        cluster=ClusterSpec(nodes=(Node(host="a", devices=(device,)),)),
        paths=ResultsPaths(results=folder, exps=folder / "exps"),
        source=source,
        dialect=choose_dialect(source).dialect,
        settings=AutotuningSettings(),
    )


def test_a_second_attempt_leaves_no_failure_of_the_first(
    files: TrialFiles, tmp_path: Path
) -> None:
    trial = replace(FINAL, final=False)
    files.plan(trial, "one")
    files.finish(record(trial, failure_of(FailureKind.OUT_OF_MEMORY, "full")))
    again = replace(trial, attempt=2)
    files.plan(again, "two")
    files.finish(record(again, steps_of(0.1)))
    assert (tmp_path / trial.name / "metrics.json").exists()
    assert not (tmp_path / trial.name / "failure.json").exists()


@pytest.mark.parametrize(("flops", "is_possible"), [(60e12, True), (120e12, False)])
def test_metrics_say_that_a_rate_is_above_the_peak_of_the_gpu(
    files: TrialFiles, tmp_path: Path, flops: float, is_possible: bool
) -> None:
    card = Device(name="NVIDIA A100-SXM4-80GB", memory_bytes=1, visible_as="0")
    cards = (card, replace(card, slot=1, visible_as="1"))
    files = replace(files, cluster=ClusterSpec(nodes=(Node(host="a", devices=cards),)))
    trial = replace(FINAL, final=False)
    files.plan(trial, "one")
    measured = files.complete(replace(steps_of(0.1), flops_per_step=flops))
    assert isinstance(measured, Measurement)
    assert measured.above_peak is not is_possible
    files.finish(record(trial, measured))
    found = json.loads((tmp_path / trial.name / "metrics.json").read_text())
    assert ("impossible" in found) is not is_possible
    assert is_possible or "above the peak of A100-SXM-80GB (312 TFLOP/s)" in found["impossible"]


@pytest.mark.parametrize(
    ("flops", "names", "is_possible"),
    [
        (120e12, ["NVIDIA A100-SXM4-80GB"] * 4, True),
        (130e12, ["NVIDIA A100-SXM4-80GB"] * 4, False),
        (60e12, ["NVIDIA A100-SXM4-80GB"] * 2, True),
        (70e12, ["NVIDIA A100-SXM4-80GB"] * 2, False),
        (130e12, ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"] * 2, True),
        (900e12, ["A card that no table has"] * 4, True),
    ],
)
def test_flops_of_all_ranks_are_held_against_the_peaks_of_their_gpus(
    flops: float, names: list[str], is_possible: bool
) -> None:
    devices = tuple(Device(name=name, memory_bytes=1, slot=i) for i, name in enumerate(names))
    cluster = ClusterSpec(nodes=(Node(host="a", devices=devices),))
    fast, slow = (
        replace(steps_of(step_s), flops_per_step=flops, world_size=4) for step_s in (0.1, 0.9)
    )
    said = impossible_flops([record(FINAL, slow), record(FINAL, fast)], cluster)
    assert bool(said) is not is_possible
    assert impossible_flops([record(FINAL, slow)], cluster) == ""
    assert is_possible or re.match(
        r".*micro 1.*: [\d,]+ TFLOP/s per GPU is above the peak of", said
    )


def test_a_trials_limit_is_the_memory_that_was_free_when_the_tune_began(
    files: TrialFiles,
) -> None:
    card = Device(name="NVIDIA L4", memory_bytes=24_000, free_bytes=14_000, visible_as="0")
    files = replace(files, cluster=ClusterSpec(nodes=(Node(host="a", devices=(card,)),)))
    use = MemoryUse(free_before_bytes=13_900, peak_bytes=15_000, limit_bytes=23_000)
    failed = FailedTrial(
        failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"), memory=use
    )
    seen = files.complete(failed)
    assert seen.memory == replace(use, limit_bytes=14_000)
    assert is_sure(Record(trial=FINAL, outcome=seen, wall_s=1.0))
    less = replace(failed, memory=replace(use, free_before_bytes=9_000))
    assert not is_sure(Record(trial=FINAL, outcome=files.complete(less), wall_s=1.0))


def cache_of(files: TrialFiles, trial: Trial) -> str | None:
    """Folder in which the ranks of a launch keep compiled code."""
    (rank,) = files.plan(trial, "one").ranks
    return dict(rank.environment).get("TORCHINDUCTOR_CACHE_DIR")


def test_each_configuration_has_a_compile_cache_that_its_repeats_share(
    files: TrialFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (replace(FINAL, name=f"t{n}", final=False) for n in (1, 2))
    caches = [cache_of(files, trial) for trial in (first, other, FINAL)]
    assert None not in caches
    assert caches[0] == caches[2] != caches[1]
    (profile,) = files.plan_profile(first, "one").ranks
    assert dict(profile.environment)["TORCHINDUCTOR_CACHE_DIR"] not in caches


def test_a_compile_cache_that_the_user_has_set_stays(
    files: TrialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    made = trial_files(tmp_path)
    assert cache_of(made, FINAL) is None


def trial(*, soak_steps: int = 0, attempt: int = 1) -> Trial:
    return Trial(
        number=1,
        name="z0_gas4_tmbspg2",
        candidate=Candidate(layout=Layout(accumulation=4)),
        space="z0",
        soak_steps=soak_steps,
        attempt=attempt,
    )


def task_in(folder: Path, mode: Mode = Mode.MEASURE) -> RankTask:
    return RankTask(mode=mode, folder=str(folder), attempt="a1", end_step=20)


def model_of(parameters: int) -> ModelSpec:
    return ModelSpec(grade=Grade.OPAQUE, blocks=(BlockSpec(name="all", parameters=parameters),))


def test_what_a_trial_saved_is_removed_and_its_results_stay(tmp_path: Path) -> None:
    for name in ("output/checkpoint-7/model.bin", "saved/12_model.pt", "result.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    clear_saved(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


LARGE = 10**18
"""Parameters whose checkpoint no disk has room for."""


@pytest.mark.parametrize(
    ("soak_steps", "attempt", "parameters", "evaluates", "saves"),
    [
        (20, 1, None, True, True),
        (0, 1, None, False, False),
        (20, 2, None, False, False),
        (20, 1, 1000, True, True),
        (20, 1, LARGE, True, False),
    ],
)
def test_the_first_attempt_of_a_soak_asks_for_an_evaluation_and_a_checkpoint_if_it_has_room(
    tmp_path: Path,
    soak_steps: int,
    attempt: int,
    parameters: int | None,
    evaluates: bool,
    saves: bool,
) -> None:
    model = None if parameters is None else model_of(parameters)
    soak = trial(soak_steps=soak_steps, attempt=attempt)
    needs = needs_of(task_in(tmp_path), soak, model)
    assert (needs.evaluates, needs.saves) == (evaluates, saves)
    assert (needs.steps, needs.accumulation) == (20, 4)


@pytest.mark.parametrize(
    ("attempt", "parameters", "ends"), [(1, 1000, True), (2, 1000, False), (1, LARGE, False)]
)
def test_only_in_a_first_attempt_with_room_on_the_disk_the_data_ends_with_the_steps(
    tmp_path: Path, attempt: int, parameters: int, ends: bool
) -> None:
    soak = trial(soak_steps=7, attempt=attempt)
    task = soak_task(task_in(tmp_path), soak, model_of(parameters))
    assert (task.soak, task.end_step, task.ends_epoch) == (True, 7, ends)
    assert soak_task(task_in(tmp_path), trial(soak_steps=2), None).start_step == 2
