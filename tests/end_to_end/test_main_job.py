"""The main job with the real command, real ranks and a tiny model."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from .conftest import SCRIPT, SMALL, Finished, Place, clean_place, wait_until

SEARCHED = {**SMALL, "autotuning": {"enabled": True, "tuner_type": "gridsearch"}}


@pytest.fixture(scope="module")
def sound_tune(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two trials that work; a key is a near miss, and the script writes of errors to stderr."""
    with clean_place(tmp_path_factory.mktemp("sound")) as place:
        settings = {"enabled": True, "tuner_type": "gridsearch"}
        place.write_config({**SMALL, "autotuning": settings, "gradient_cliping": 1.0})
        yield Finished(place, *place.tune("--tuner-num-trials=2", fault="stderr"))


def names(place: Place) -> list[str]:
    """Names of the recorded trials, in order."""
    return [line["name"] for line in place.journal("name")]


def test_a_tune_leaves_everything_that_the_results_folder_promises(sound_tune: Finished) -> None:
    place = sound_tune.place
    assert sound_tune.code == 0, sound_tune.output
    kept = {path.name for path in place.results.iterdir()}
    assert kept >= {
        "journal.jsonl",
        "env.json",
        "profile_model_info",
        "z0_gas4_tmbspg1",
        "summary.txt",
        "summary.json",
        "trials.csv",
        "ds_config_optimal.json",
        "cmd_optimal.txt",
        "run_optimal.sh",
    }
    trial = {path.name for path in (place.results / "z0_gas4_tmbspg1").iterdir()}
    assert trial >= {
        "cmd.txt",
        "ds_config.json",
        "exp.json",
        "metrics.json",
        "result.json",
        "steps.jsonl",
        "stdout.log",
        "stderr.log",
    }
    assert (place.folder / "autotuning_exps" / "z0_gas4_tmbspg1.json").exists()
    assert place.summary()["soak"] is None


def test_the_word_error_on_stderr_is_no_failure(sound_tune: Finished) -> None:
    assert sound_tune.code == 0, sound_tune.output
    profile = sound_tune.place.results / "profile_model_info"
    assert "error: this is only a warning" in (profile / "stderr.log").read_text()


def test_a_near_miss_elsewhere_is_only_warned_of(sound_tune: Finished) -> None:
    assert sound_tune.code == 0, sound_tune.output
    assert "did you mean 'gradient_clipping'" in sound_tune.output


@pytest.mark.slow
def test_a_dry_run_profiles_and_tries_nothing_and_a_tune_goes_on_from_it(place: Place) -> None:
    place.write_config(SEARCHED)
    code, output = place.run("tune", "--dry-run", str(SCRIPT), "--config", "config.json")
    assert code == 0, output
    assert "Dry run: 3 configurations to try" in output
    assert "ZeRO 0 · micro 1 · accum 4 (yours)" in output
    assert "\nExpected duration of the tune: " in output
    assert names(place) == []
    assert not (place.results / "summary.txt").exists()
    code, output = place.tune("--tuner-num-trials=1")
    assert (code, "profile (read from an earlier run)" in output) == (0, True), output


@pytest.mark.slow
def test_run_trains_on_to_the_end_of_the_script_and_returns_its_code(place: Place) -> None:
    done = place.folder / "done"
    argv = ("--autotuning=run", "--tuner-num-trials=1", str(SCRIPT), "--config", "config.json")
    code, output = place.run(*argv, "--steps=9", f"--done={done}", fault="exit_code")
    assert code == 7, output
    assert done.read_text() == "9 steps of 4"


def test_the_optimal_command_trains_as_it_is_written(sound_tune: Finished) -> None:
    script = sound_tune.place.results / "run_optimal.sh"
    answer = subprocess.run(
        ["sh", str(script)],
        capture_output=True,
        check=False,
        env={"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.slow
def test_two_ranks_explore_the_stages_in_order(place: Place) -> None:
    place.write_config({**SEARCHED, "zero_optimization": {"stage": [0, 1]}})
    code, output = place.tune("--num_gpus=2", "--tuner-num-trials=1")
    assert code == 0, output
    stages = [name[:2] for name in names(place)]
    assert stages == sorted(stages)


@pytest.mark.slow
def test_after_kill_9_the_same_command_goes_on_and_measures_nothing_twice(place: Place) -> None:
    place.write_config(SEARCHED)
    command = (
        "--autotuning=tune",
        "--effort=quick",
        "--soak-steps=0",
        str(SCRIPT),
        "--config",
        "config.json",
    )
    first = place.start(*command)
    wait_until(lambda: bool(names(place)), "nothing was measured")
    first.kill()
    first.communicate(timeout=10)
    before = names(place)
    code, output = place.run(*command)
    assert code == 0, output
    after = names(place)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)


HANGING = ("--autotuning=tune", str(SCRIPT), "--config", "config.json")


def hang(place: Place) -> subprocess.Popen[str]:
    """A tune once its profile run hangs."""
    started = place.start(*HANGING, fault="hang")
    wait_until(lambda: len(place.living()) >= 3, "no rank was started")
    return started


def test_a_second_tune_is_refused_and_a_killed_one_leaves_no_process_for_two_seconds(
    place: Place,
) -> None:
    first = hang(place)
    code, output = place.tune_here()
    assert code == 2, output
    assert f"in use by process {first.pid}" in output
    first.kill()
    first.communicate(timeout=10)
    time.sleep(2.0)
    assert place.living() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM], ids=["Slurm's", "the end"])
def test_a_warning_stops_the_tune_resumably(place: Place, number: signal.Signals) -> None:
    process = hang(place)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 75, output
    assert "continues from here" in output
