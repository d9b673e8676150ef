"""Twenty ``kill -9`` of the controller at random moments: nothing lost, nothing repeated."""

from __future__ import annotations

import json
import random
import subprocess
import time

import pytest

from .conftest import SCRIPT, SMALL, Place

KILLS, LONGEST_S = 20, 6.0
CONFIG = {
    **SMALL,
    "train_micro_batch_size_per_gpu": list(range(1, 11)),
    "autotuning": {"enabled": True, "tuner_early_stopping": 50, "tuner_type": "random"},
}
ARGV = (
    "--autotuning=tune",
    "--allow-global-batch-change",
    "--good-enough=0%",
    str(SCRIPT),
    "--config=config.json",
)


def record(place: Place) -> list[str]:
    journal = place.results / "journal.jsonl"
    lines = journal.read_bytes().rpartition(b"\n")[0].splitlines() if journal.exists() else []
    return [line["name"] for line in map(json.loads, lines) if "name" in line]


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_repeat_nothing(place: Place) -> None:
    place.write_config(CONFIG)
    moments = random.Random(0)
    before: list[str] = []
    for _ in range(KILLS):
        process = place.start(*ARGV)
        try:
            process.communicate(timeout=moments.uniform(0.1, LONGEST_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        time.sleep(2.0)
        assert place.living() == []
        after = record(place)
        assert after[: len(before)] == before
        before = after
    code, output = place.run(*ARGV)
    assert code == 0, output
    assert record(place)[: len(before)] == before
    assert sorted(record(place)) == sorted(set(record(place)))
    assert len(record(place)) == 10


@pytest.mark.slow
def test_the_order_is_that_of_an_uninterrupted_tune(place: Place) -> None:
    place.write_config(CONFIG)
    in_turn = "--max-parallel-trials=1"  # side by side either of two may end first
    assert place.run(in_turn, *ARGV)[0] == 0
    whole = record(place)
    assert place.run("--fresh", in_turn, *ARGV)[0] == 0
    assert record(place) == whole
