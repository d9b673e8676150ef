"""A published training among all layouts of its model and cluster."""

import pytest

from .conftest import import_benchmark

published = import_benchmark("published_plan")


def test_plan_has_the_layout_of_deepseek_v3_among_its_first_rows_at_its_pace() -> None:
    assert pytest.approx(19.9, rel=0.01) == published.PUBLISHED_S
    found = published.published_plan()
    assert (found.rank or 1000) <= 20
    assert found.layout_s == pytest.approx(published.PUBLISHED_S, rel=0.2)
    assert found.best_s == pytest.approx(published.PUBLISHED_S, rel=0.2)
