"""Order of trials that wait for slots."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import Trial
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.engines import HostSlots
from autoconf_launch.launcher.hosts import Placement, Share, Size, SlotPool
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.tuning.running import TrialQueue, Waiting

HOSTS = 8


def waiting(number: int, nodes: int) -> Waiting:
    name = f"t{number}"
    trial = Trial(number=number, name=name, candidate=Candidate(layout=Layout()), space="z0")
    plan = LaunchPlan(name=name, ranks=(), working_directory=".")
    return Waiting(trial=trial, plan=plan, size=Size(nodes=nodes))


def pool_of(hosts: int) -> SlotPool:
    slots = [HostSlots(host=f"h{number}", slots=(0,)) for number in range(hosts)]
    return SlotPool(slots, lambda place: Share())


def queue_of(*nodes: int) -> TrialQueue:
    queue = TrialQueue()
    for number, count in enumerate(nodes):
        queue.add(waiting(number, count))
    return queue


def next_name(queue: TrialQueue, pool: SlotPool, now_s: float, longest_s: float) -> str | None:
    found = queue.next(pool, now_s, longest_s)
    return found[0].trial.name if found else None


def test_the_best_that_fits_is_first() -> None:
    queue, pool = queue_of(3, 2, 2), pool_of(4)
    assert [next_name(queue, pool, 0.0, 1.0) for _ in range(3)] == ["t0", None, None]
    assert len(queue) == 2


def test_smaller_ones_overtake_until_the_head_has_waited_for_the_longest_trial() -> None:
    queue, pool = queue_of(4, 1, 1), pool_of(4)
    pool.take(Size(nodes=2))
    assert next_name(queue, pool, 0.0, 10.0) == "t1"
    assert next_name(queue, pool, 10.0, 10.0) is None


def test_who_lost_its_place_is_first_again() -> None:
    queue, pool = queue_of(1), pool_of(1)
    queue.put_back(waiting(7, 1))
    assert next_name(queue, pool, 0.0, 1.0) == "t7"


@given(st.lists(st.integers(1, HOSTS), min_size=1, max_size=40), st.integers(0, 1000))
def test_nobody_at_the_head_waits_twice_the_longest_trial(sizes: list[int], seed: int) -> None:
    draw = random.Random(seed)
    queue, pool = queue_of(*sizes), pool_of(HOSTS)
    running: list[tuple[float, Placement]] = []
    now_s = longest_s = 0.0
    head, head_s = "", 0.0
    while len(queue) or running:
        while found := queue.next(pool, now_s, longest_s):
            duration_s = draw.choice([1.0, 2.0, 10.0])
            longest_s = max(longest_s, duration_s)
            running.append((now_s + duration_s, found[1]))
        first = next(iter(queue), None)
        if first and first.trial.name != head:
            head, head_s = first.trial.name, now_s
        assert not first or now_s - head_s <= 2.0 * longest_s
        if running:
            running.sort(key=lambda pair: pair[0])
            now_s, place = running.pop(0)
            pool.give_back(place)
