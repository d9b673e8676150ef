"""Layouts on two and four ranks against a plain loop in one process, on the same global batches.

``make test-parallel`` has more rows, on more ranks.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ..benchmarks.conftest import BENCHMARKS, import_benchmark

rows = import_benchmark("parallel_rows.rows")
models = import_benchmark("parallel_rows.models")
RANK = BENCHMARKS / "parallel_rows" / "train.py"


@cache
def alone(model: str, precision: str) -> Any:
    return models.one_process(model, precision)


ROWS = (*rows.TWO_RANKS, *rows.TESTED_ON_FOUR)


@pytest.fixture(scope="module")
def seen(launch: Callable[..., Any]) -> dict[Any, Any]:
    found = {}
    for same in (rows.TWO_RANKS, rows.TESTED_ON_FOUR):
        ended = launch(RANK, json.dumps([row.case for row in same]), ranks=same[0].ranks)
        assert set(ended.exit_codes) == {0}, ended.errors
        for row, answer in zip(same, json.loads(ended.outputs[0]), strict=True):
            found[row] = rows.difference(answer, alone(row.model, row.precision))
    return found


def name_it(row: Any) -> str:
    return f"{row.ranks}-{row.model}-{row.name}"


@pytest.mark.parametrize("row", ROWS, ids=name_it)
def test_losses_and_norms_are_those_of_one_process(row: Any, seen: dict[Any, Any]) -> None:
    assert seen[row].within(row), (seen[row].loss, seen[row].norm)


@pytest.mark.parametrize("row", ROWS, ids=name_it)
def test_the_layout_found_on_the_live_model_is_the_one_asked_for(
    row: Any, seen: dict[Any, Any]
) -> None:
    assert seen[row].ran_as(row), seen[row].applied
