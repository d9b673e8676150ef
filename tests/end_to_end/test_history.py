"""A tune starts from the measurements of an earlier one of the same model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import SMALL, Place

pytestmark = pytest.mark.slow
TUNED = {**SMALL, "autotuning": {"enabled": True, "tuner_num_trials": 3}}


def test_a_second_tune_starts_from_what_the_first_measured(place: Place) -> None:
    place.write_config(TUNED)
    code, output = place.tune()
    assert code == 0, output
    assert "earlier tunes" not in output
    kept = Path(os.environ["XDG_DATA_HOME"]) / "autoconf-launch" / "measurements.jsonl"
    times = [json.loads(line)["time"] for line in kept.read_text().splitlines()]
    assert times
    code, output = place.tune("--fresh")
    assert code == 0, output
    assert f"Starting from {len(times)} step times that earlier tunes" in output
    assert [line["past"] for line in place.journal("past")] == [times]
    before = kept.read_text()
    code, output = place.tune("--fresh", "--no-history")
    assert code == 0, output
    assert "earlier tunes" not in output
    assert kept.read_text() == before
