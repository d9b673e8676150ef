import time

import torch

from autoconf_launch.runtime.rank import BACKWARD, FORWARD, UPDATE, PhaseClock, Ranks

CPU = torch.device("cpu")


def clock_of(ranks: int, *laps: tuple[str, float]) -> PhaseClock:
    """After one step with these phases and at least these seconds."""
    clock = PhaseClock(Ranks(rank=0, world_size=ranks, device=CPU))
    clock.begin()
    for phase, seconds in laps:
        time.sleep(seconds)
        clock.lap(phase)
    clock.end_step()
    return clock


def test_what_the_last_backward_takes_longer_is_the_exchange() -> None:
    phases = dict(clock_of(2, (BACKWARD, 0.0), (BACKWARD, 0.05)).means())
    assert phases["exchange"] >= 0.04
    assert phases["backward"] < 0.04


def test_a_single_backward_is_not_divided_and_one_rank_exchanges_nothing() -> None:
    clocks = clock_of(2, (BACKWARD, 0.01)), clock_of(1, (BACKWARD, 0.0), (BACKWARD, 0.01))
    assert [dict(clock.means())["exchange"] for clock in clocks] == [0.0, 0.0]


def test_a_step_that_is_begun_anew_does_not_count() -> None:
    clock = clock_of(1, (FORWARD, 0.0), (BACKWARD, 0.0), (UPDATE, 0.0))
    before = clock.means()
    clock.begin()
    clock.lap(FORWARD)
    assert clock.means() == before
