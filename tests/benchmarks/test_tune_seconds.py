"""Parts of a tune by its results folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import import_benchmark

tune_seconds = import_benchmark("tune_seconds")


def start_of(name: str, unix_s: float) -> dict[str, Any]:
    return {"started": {"name": name, "start_unix_s": unix_s}}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A tune from 100 to 130: profile run until 105, one trial, two finals, a verification."""
    (tmp_path / "profile_model_info").mkdir()
    ended = {"ended_unix_s": 105.0}
    (tmp_path / "profile_model_info" / "result.json").write_text(json.dumps(ended))
    for name in ("z0", "z0_soak"):
        (tmp_path / name).mkdir()
        steps = [(0, 1, 0.5), (1, 1, 0.75), (0, 2, 0.25), (1, 2, 0.125)]
        lines = [{"rank": rank, "step": step, "wall_s": s} for rank, step, s in steps]
        (tmp_path / name / "steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    journal = [
        {"profiled": True, "wall_s": 4.0},
        start_of("z0", 106.0),
        {"name": "z0", "wall_s": 3.0},
        start_of("z0_again", 109.0),
        {"again": {"name": "z0_again", "wall_s": 2.0}},
        start_of("z0_final", 112.0),
        start_of("z1_final", 113.0),
        start_of("z0_soak", 120.0),
        {"soak": {"name": "z0_soak", "wall_s": 8.0}},
    ]
    (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, journal)))
    return tmp_path


def test_each_second_belongs_to_one_part(results: Path) -> None:
    parts = tune_seconds.parts_of(results, 100.0, 130.0)
    assert list(parts.values()) == [1.0, 4.0, 1.0, 2.0, 2.0, 2.0, 8.0, 1.0, 7.0, 2.0, 30.0]


def test_the_table_has_medians_with_the_lowest_and_the_highest() -> None:
    runs = [{"playoff": value} for value in (1.0, 4.0, 2.0)]
    assert "| playoff | 2.00 | 1.00 | 4.00 |" in tune_seconds.as_table(runs, [0.1, 0.2, 0.3])
