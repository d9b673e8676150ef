"""Free slots of hosts, whatever is taken and given back in whatever order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.launcher.engines import HostSlots
from autoconf_launch.launcher.hosts import Placement, Share, Size, SlotPool

SIZES = st.builds(Size, nodes=st.integers(1, 4), slots=st.integers(1, 4))
HOSTS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def pool_of(*slots: int, most: int | None = None) -> SlotPool:
    """Hosts a, b, … with so many slots."""
    hosts = [
        HostSlots(host=chr(ord("a") + n), slots=tuple(range(own))) for n, own in enumerate(slots)
    ]
    return SlotPool(hosts, lambda place: Share(), most=most)


def take(pool: SlotPool, nodes: int, slots: int) -> dict[str, tuple[int, ...]]:
    place = pool.take(Size(nodes=nodes, slots=slots))
    return {part.host: part.slots for part in place or ()}


@given(HOSTS, st.lists(st.tuples(SIZES, st.booleans()), max_size=20))
def test_no_slot_is_taken_twice_and_all_come_back(
    hosts: list[int], steps: list[tuple[Size, bool]]
) -> None:
    pool, places = pool_of(*hosts), list[Placement]()
    whole = {size: pool.room(size) for size, _ in steps}
    for size, gives_back in steps:
        room = pool.room(size)
        place = pool.take(size)
        assert (place is not None) == (room > 0)
        if place is not None:
            assert [len(part.slots) for part in place] == [size.slots] * size.nodes
            places.append(place)
        slots = Counter((p.host, slot) for place in places for p in place for slot in p.slots)
        assert set(slots.values()) <= {1}
        if gives_back and places:
            pool.give_back(places.pop(0))
    for place in places:
        pool.give_back(place)
    assert {size: pool.room(size) for size in whole} == whole


@given(HOSTS, SIZES)
def test_no_more_trials_start_than_there_is_room_for(hosts: list[int], size: Size) -> None:
    pool = pool_of(*hosts)
    room, count = pool.room(size), 0
    while pool.take(size) is not None:
        count += 1
    assert count <= room
    assert (count > 0) == (room > 0)
    if size.nodes == 1:
        assert count == room


def test_a_small_trial_leaves_whole_hosts_to_large_ones() -> None:
    pool = pool_of(4, 4)
    assert take(pool, 1, 1) == {"a": (0,)}
    assert take(pool, 1, 1) == {"a": (1,)}
    assert take(pool, 1, 4) == {"b": (0, 1, 2, 3)}
    assert take(pool, 1, 4) == {}


def test_one_trial_after_the_other_is_on_the_same_hosts() -> None:
    pool = pool_of(2, 2, 2).one_at_a_time()
    first = pool.take(Size(nodes=2, slots=2))
    assert pool.take(Size()) is None
    assert first is not None
    pool.give_back(first)
    assert pool.take(Size(nodes=2, slots=2)) == first


def test_a_host_that_was_lost_is_the_last_choice_and_then_none() -> None:
    pool = pool_of(1, 1)
    assert pool.blame(["a"]) == ()
    assert take(pool, 1, 1) == {"b": (0,)}
    assert pool.blame(["a"]) == ("a",)
    assert take(pool, 1, 1) == {}
    assert pool.can_hold(Size())
    assert not pool.can_hold(Size(nodes=2))


def test_a_host_set_aside_stays_so_for_the_rounds_after_the_search() -> None:
    pool = pool_of(1, 1)
    pool.blame(["a", "a"])
    assert take(pool.one_at_a_time(), 1, 1) == {"b": (0,)}


def test_a_lost_host_of_fixed_shares_leaves_nothing() -> None:
    pool = SlotPool.of_shares((Share(),))
    pool.blame(["a", "a"])
    assert not pool.can_hold(Size())
