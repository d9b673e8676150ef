from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import Verdict
from autoconf_launch.core import Layout, Recompute
from autoconf_launch.launcher.first_forward import rooms
from autoconf_launch.launcher.first_forward.answers import largest

NONE = (Recompute.NONE,)


@given(st.integers(0, 5000))
def test_the_largest_one_that_fits_is_found(limit: int) -> None:
    assert largest(lambda size: size <= limit) == limit


def test_there_is_an_end_to_looking() -> None:
    assert largest(lambda size: True) == 1 << 20


def test_one_rank_has_nothing_to_share() -> None:
    assert [room.zero_stage for room in rooms(Layout(), NONE, lambda _: 1.0, 10)] == [0]


def test_every_stage_has_its_room() -> None:
    def peak(layout: Layout) -> float:
        return 10.0 * layout.micro_batch + 100.0 / (1 + layout.zero_stage)

    layout = Layout(data_parallel=8, micro_batch=2)
    found = rooms(layout, NONE, peak, 100)
    assert [room.verdict for room in found] == [
        Verdict.NO,
        Verdict.YES,
        Verdict.YES,
        Verdict.YES,
    ]
    assert [room.largest for room in found] == [0, 4, 5, 6]
