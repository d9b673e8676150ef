from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.launcher.results.journal import CoveredTime

STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(STRETCHES)
def test_each_second_counts_once_however_many_lie_over_it(
    stretches: list[tuple[int, int]],
) -> None:
    covered = CoveredTime()
    for start_s, length_s in stretches:
        covered.add(start_s, start_s + length_s)
    seconds = {start_s + n for start_s, length_s in stretches for n in range(length_s)}
    assert covered.total_s == len(seconds)
