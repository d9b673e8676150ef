"""Twenty ``kill -9`` of the controller at random moments: nothing lost, nothing repeated."""

from __future__ import annotations

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
    return [line["name"] for line in place.journal("name")]


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
