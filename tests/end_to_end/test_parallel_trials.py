"""Trials side by side on real cores, forked ones, and what is measured again at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import SCRIPT, SMALL, Finished, Place, clean_place, wait_until

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two trials need two cores"
)
TELLING = f"""
import os, sys
print("forked" if "torch" in sys.modules else "spawned", *sorted(os.sched_getaffinity(0)))
import runpy, torch
print("threads", torch.get_num_threads(), flush=True)
sys.argv[0] = {str(SCRIPT)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
BATCHES = {
    **SMALL,
    "train_micro_batch_size_per_gpu": [1, 2, 4],
    "autotuning": {"enabled": True, "tuner_type": "gridsearch"},
}


@pytest.fixture
def telling(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose script tells how it was started, on which cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return with_script(place)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """A whole tune of it, with two trials at a time."""
    with (
        pytest.MonkeyPatch.context() as patch,
        clean_place(tmp_path_factory.mktemp("telling")) as place,
    ):
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield Finished(place, 0, tune(with_script(place), "--max-parallel-trials=2"))


def with_script(place: Place) -> Place:
    (place.folder / "telling.py").write_text(TELLING)
    place.write_config(BATCHES)
    return place


def tune(place: Place, *flags: str) -> str:
    argv = ("--autotuning=tune", "--effort=quick", "--num_gpus=1", *flags)
    code, output = place.run(*argv, "telling.py", "--config", "config.json")
    assert code == 0, output
    return output


def names(place: Place, kind: str) -> list[str]:
    """Names of ``started`` lines, ``final`` ones or plain records."""
    if kind == "record":
        return [line["name"] for line in place.journal("name")]
    return [line[kind]["name"] for line in place.journal(kind)]


def tell(place: Place, trial: str) -> list[str]:
    """The first two lines of a trial's script."""
    return Path(place.results, trial, "stdout.log").read_text().splitlines()[:2]


def launches(place: Place) -> list[tuple[str, int]]:
    """Name and number of each launch after the search that was recorded."""
    lines = [line.get("final") or line.get("soak") for line in place.journal()]
    return [(line["name"], line["attempt"]) for line in lines if line]


def most_at_once(place: Place, of: str = "") -> int:
    """The longest run of starts without an end between them; ``record``: only in the search."""
    running, most = set[str](), 0
    for line in place.journal():
        if "started" in line and not (of and line["started"]["name"].endswith("_final")):
            running.add(line["started"]["name"])
        ended = line.get("final") or line.get("again") or line
        running.discard(ended.get("name", ""))
        most = max(most, len(running))
    return most


def test_two_trials_of_one_process_run_at_once_on_cores_of_their_own(tuned: Finished) -> None:
    telling = tuned.place
    profile, _, search = tuned.output.partition("2 trials run at a time")
    assert ("profile (" in profile, "search: " in search) == (True, True)
    assert most_at_once(telling, "record") == 2
    baseline, *others = (tell(telling, name)[0].split() for name in names(telling, "record"))
    assert baseline[0] == others[0][0] == "forked"
    first, second = (set(cores) for _, *cores in others)
    assert not first & second


def test_the_best_are_measured_again_and_the_winner_verified_alone(tuned: Finished) -> None:
    telling = tuned.place
    cores = len(os.sched_getaffinity(0))
    (soak,) = names(telling, "soak")
    for name in {*names(telling, "final"), soak}:
        started, threads = tell(telling, name)
        assert started.split()[0] == "forked"
        assert len(started.split()) == 1 + cores
        assert threads == f"threads {cores}"
    summary = telling.summary()
    assert summary["spaces"][-1]["num_experiments"] == 3
    assert f"{summary['winner']}_soak" == soak


@pytest.mark.slow
def test_after_kill_9_nothing_is_measured_twice(telling: Place) -> None:
    two = "--max-parallel-trials=2"
    argv = ("--autotuning=tune", "--num_gpus=1", two, "telling.py", "--config", "config.json")
    first = telling.start(*argv)
    wait_until(lambda: bool(names(telling, "final")), "nothing was measured again")
    first.kill()
    first.communicate(timeout=10)
    tune(telling, two)
    assert len(set(names(telling, "record"))) == len(names(telling, "record")) == 3
    before = launches(telling)
    assert len(set(before)) == len(before)
    tune(telling, two)
    assert launches(telling) == before
