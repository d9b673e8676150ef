"""Bands beside the published tables, and the groups that the package ships."""

import pytest

from autoconf_launch.autotuner.planner.bands import MEASURED_GROUPS

from .conftest import import_benchmark

bands = import_benchmark("planner_bands")


@pytest.mark.slow
def test_nine_of_ten_steps_lie_in_their_bands_also_where_nothing_like_them_was_measured() -> None:
    shares = bands.shares_within(bands.all_settings())
    assert len(shares) == 3
    assert all(0.85 <= round(share, 2) <= 0.95 for share in shares.values()), shares


@pytest.mark.slow
def test_the_measured_groups_in_the_package_are_those_of_the_tables() -> None:
    made = bands.measured_groups(bands.all_settings())
    errors = {(one.table, one.traits): round(one.error, 3) for one in made}
    assert {(one.table, one.traits): one.error for one in MEASURED_GROUPS} == errors
