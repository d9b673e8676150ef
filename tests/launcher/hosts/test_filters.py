"""The cases of DeepSpeed's own tests of ``parse_resource_filter``, with 0.19.8's meaning."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.engines import HostSlots
from autoconf_launch.launcher.hosts.hostfile import filter_slots

Pool: TypeAlias = tuple[HostSlots, ...]


def pool(**hosts: list[int]) -> Pool:
    return tuple(
        HostSlots(host=name.replace("_", "-"), slots=tuple(slots)) for name, slots in hosts.items()
    )


ONE = pool(worker_0=[0, 1, 2, 3])
TWO = pool(worker_0=[0, 1, 2, 3], worker_1=[0, 1, 2, 3])


def test_include_and_exclude_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot be given together"):
        filter_slots((), include="A", exclude="B")


@pytest.mark.parametrize("hosts", [ONE, TWO])
def test_no_filter_leaves_the_pool_alone(hosts: Pool) -> None:
    assert filter_slots(hosts) == hosts


@pytest.mark.parametrize(
    ("hosts", "text", "left"),
    [
        (ONE, "worker-0:1", pool(worker_0=[1])),
        (ONE, "worker-0:1,1", pool(worker_0=[1])),
        (ONE, "worker-0:1@worker-0:0,1", pool(worker_0=[0, 1])),
        (ONE, "worker-0", ONE),
        (TWO, "worker-1:0,3", pool(worker_1=[0, 3])),
        (TWO, "worker-0@worker-1:0,2", pool(worker_0=[0, 1, 2, 3], worker_1=[0, 2])),
    ],
)
def test_included_slots_are_used_as_given(hosts: Pool, text: str, left: Pool) -> None:
    assert filter_slots(hosts, include=text) == left


@pytest.mark.parametrize(
    ("hosts", "text", "left"),
    [
        (ONE, "worker-0:1", pool(worker_0=[0, 2, 3])),
        (ONE, "worker-0:1,2", pool(worker_0=[0, 3])),
        (ONE, "worker-0", ()),
        (ONE, "worker-0:0,1,2,3", ()),
        (TWO, "worker-1", ONE),
        (TWO, "worker-0:0,1@worker-1:3", pool(worker_0=[2, 3], worker_1=[0, 1, 2])),
    ],
)
def test_excluded_slots_are_left_out(hosts: Pool, text: str, left: Pool) -> None:
    assert filter_slots(hosts, exclude=text) == left


@pytest.mark.parametrize("text", ["jeff", "worker-1:4", "worker-1@worker-0:1@5"])
def test_what_the_pool_lacks_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        filter_slots(TWO, include=text)
    with pytest.raises(ConfigError):
        filter_slots(TWO, exclude=text)


@pytest.mark.parametrize(
    "text",
    ["@", "worker-0@", "worker-0:", "worker-0:1,", "worker-0:a", "worker-0:0-2", ":1", "a b"],
)
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--include is .* must be HOST or HOST:SLOT"):
        filter_slots(TWO, include=text)


def test_an_unknown_host_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"'worker0', .* did you mean 'worker-0'\?"):
        filter_slots(TWO, exclude="worker0")


def test_an_unknown_slot_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="slot 4 of worker-1, which has: 0, 1, 2, 3"):
        filter_slots(TWO, include="worker-1:4")


def test_slots_keep_the_pools_order() -> None:
    assert filter_slots(pool(a=[3, 1, 0]), include="a:0,3") == pool(a=[3, 0])


hosts_with_slots = st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=4)


@given(hosts_with_slots, st.data())
def test_including_and_excluding_the_same_slots_divide_the_pool(
    slots: list[set[int]], data: st.DataObject
) -> None:
    whole = tuple(
        HostSlots(host=f"h{i}", slots=tuple(sorted(numbers))) for i, numbers in enumerate(slots)
    )
    every = [(host.host, slot) for host in whole for slot in host.slots]
    named = data.draw(st.lists(st.sampled_from(every), min_size=1))
    text = "@".join(f"{host}:{slot}" for host, slot in named)
    taken = filter_slots(whole, include=text)
    left = filter_slots(whole, exclude=text)
    parts = [(host.host, slot) for host in (*taken, *left) for slot in host.slots]
    assert sorted(parts) == sorted(every)
    assert {(host.host, slot) for host in taken for slot in host.slots} == set(named)
