"""Trees of the other tables on a made-up table, where it is known what they should do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .conftest import import_benchmark

published = import_benchmark("published_trees")
TENSOR = np.array([1, 2, 4, 8] * 10)
MEASURED_S = np.array([4.0, 3.0, 2.0, 1.0] * 10)
"""Forty rows of four degrees: thirty-six of the table that is learned from, then four to score."""


def pair(errors: Any) -> Any:
    rows = published.Rows(
        tables_R=("learned",) * 36 + ("scored",) * 4,
        features_RF=np.log2(TENSOR)[:, None],
        weights_R=np.ones(40),
        measured_s_R=MEASURED_S,
        groups_R=("group",) * 40,
    )
    return published.comparisons(rows, {"scored": errors}, 3)["scored"]


def over(degrees: Any) -> Any:
    """Logarithm of predicted over measured, where each doubling of a degree costs 60 % more."""
    return np.log(1.6) * np.log2(degrees)


def test_an_error_that_the_other_table_shares_is_taken_away() -> None:
    plain, corrected = pair(over(TENSOR))
    assert (plain.groups, plain.spearman) == (1, pytest.approx(-0.4))
    assert plain.top1_regret_mean == pytest.approx(300.0)
    assert plain.mape == pytest.approx(100 * np.mean(1.6 ** np.arange(4) - 1))
    assert (corrected.spearman, corrected.top1_regret_mean) == (pytest.approx(1.0), 0.0)
    assert corrected.mape < 5
    assert published.counts([(plain, corrected)], *published.ORDER) == (1, 0)
    assert "in 1 of 1 tables" in published.verdict({"scored": (plain, corrected)})


def test_errors_of_the_scored_table_alone_are_not_learned() -> None:
    errors = -over(TENSOR)
    errors[36:] = 0.0
    plain, corrected = pair(errors)
    assert (plain.mape, plain.spearman, plain.top1_regret_mean) == (0.0, 1.0, 0.0)
    assert published.counts([(plain, corrected)], *published.ORDER) == (0, 1)
    assert published.counts([(plain, corrected)], "mape") == (0, 1)
    errors = np.zeros(40)
    errors[36:] = over(TENSOR[36:])
    plain, corrected = pair(errors)
    assert corrected == plain
    assert published.NOT_INSTALLED in published.verdict({"scored": (plain, corrected)})
