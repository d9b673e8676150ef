"""The published speeds that ``recommend`` ships are those that the benchmark works out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from .conftest import import_benchmark

speeds = import_benchmark("nvidia_published_speeds")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("number", [1, 10, 34])
def test_a_shipped_ratio_is_what_is_predicted_now(number: int) -> None:
    """Within 2 %; run the benchmark with --write where the cost model has changed."""
    shipped = rows(speeds.RESULT)[number]
    found = dict(zip(speeds.COLUMNS, speeds.compare(rows(speeds.PUBLISHED)[number]), strict=True))
    assert float(found["ratio"]) == pytest.approx(float(shipped["ratio"]), rel=0.02)
    assert [found[name] for name in ("config", "gpu", "gpus")] == [
        shipped[name] for name in ("config", "gpu", "gpus")
    ]


def test_every_published_run_is_shipped() -> None:
    assert len(rows(speeds.RESULT)) == len(rows(speeds.PUBLISHED)) == 38
