"""Free slots of hosts, whatever is taken and given back in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ClusterSpec, Device, Node
from autoconf_launch.launcher.engines import HostSlots, slurm
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import (
    Placement,
    Share,
    Size,
    SlotPool,
    find_pool,
    pool_text,
    pools,
)
from autoconf_launch.launcher.launch import plan_launch
from autoconf_launch.launcher.plan import LaunchPlan, StepSize
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.spelling import Rendered

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


CPU = Device(name="cpu (x)", memory_bytes=10**9, emulated=True)


def gpus(count: int, name: str = "X") -> tuple[Device, ...]:
    return tuple(
        Device(name=name, memory_bytes=10**9, slot=n, visible_as=str(n)) for n in range(count)
    )


def cluster_of(*nodes: tuple[Device, ...]) -> ClusterSpec:
    return ClusterSpec(
        nodes=tuple(Node(host=f"far{n}.invalid", devices=d) for n, d in enumerate(nodes, 1))
    )


class Given:
    """A hostfile of hosts with these devices."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *nodes: tuple[Device, ...]):
        self.whole = cluster_of(*nodes)
        self.hostfile = folder / "hosts"
        lines = [f"{node.host} slots={len(node.devices)}\n" for node in self.whole.nodes]
        self.hostfile.write_text("".join(lines))
        monkeypatch.setattr(pools, "find_cluster", lambda request: self.whole)

    def request(self, *flags: str) -> LaunchRequest:
        return parse_request([f"--hostfile={self.hostfile}", *flags, "train.py"])

    def cluster(self, nodes: int, slots: int) -> ClusterSpec:
        chosen = self.whole.nodes[:nodes]
        return ClusterSpec(nodes=tuple(replace(n, devices=n.devices[:slots]) for n in chosen))

    def pool(self, nodes: int, slots: int, *flags: str) -> SlotPool:
        return find_pool(self.request(*flags), self.cluster(nodes, slots))

    def place_all(self, nodes: int, slots: int, *flags: str) -> list[LaunchPlan]:
        """Plans of as many trials as run at a time."""
        request, cluster = self.request(*flags), self.cluster(nodes, slots)
        pool = find_pool(request, cluster)
        plan = plan_launch(request, cluster, Rendered(config=None, script_args=()))  # type: ignore[arg-type]
        placed = []
        while place := pool.take(pool.size_of(plan) if pool.size_of else pool.usual):
            placed.append(pool.share_of(place).place(plan))
        return placed


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Given]:
    return partial(Given, tmp_path, monkeypatch)


def places(plans: list[LaunchPlan]) -> list[list[tuple[str, str | None]]]:
    """Host and GPUs of the first rank of each node, of each plan."""
    return [
        [
            (host, dict(rank.environment).get("CUDA_VISIBLE_DEVICES"))
            for node, host in enumerate(plan.hosts)
            for rank in plan.ranks
            if rank.node == node and rank.local_rank == 0
        ]
        for plan in plans
    ]


def test_trials_of_some_gpus_fill_one_host_after_the_other(hosted: Callable[..., Given]) -> None:
    hosts = hosted(gpus(4), gpus(2), (*gpus(1), *gpus(1, "Y")))
    assert places(hosts.place_all(1, 2)) == [
        [("far2.invalid", "0,1")],
        [("far1.invalid", "0,1")],
        [("far1.invalid", "2,3")],
    ]


def test_trials_of_several_hosts_run_on_disjoint_ones(hosted: Callable[..., Given]) -> None:
    plans = hosted(*[gpus(2)] * 5).place_all(2, 2)
    hosts = [host for plan in plans for host in plan.hosts]
    assert (len(plans), len(set(hosts))) == (2, 4)
    variables = dict(plans[0].ranks[0].environment)
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("", "")


def test_a_host_without_gpus_has_one_trial(hosted: Callable[..., Given]) -> None:
    hosts = hosted(*[(CPU,) * 4] * 3)
    assert [plan.hosts for plan in hosts.place_all(1, 1)] == [
        ("far1.invalid",),
        ("far2.invalid",),
        ("far3.invalid",),
    ]


@pytest.mark.parametrize(
    "flag", ["--max-parallel-trials=1", "--master_addr=far1.invalid", "--master_port=1234"]
)
def test_one_trial_at_a_time_is_on_the_first_hosts(
    hosted: Callable[..., Given], flag: str
) -> None:
    hosts = hosted(*[gpus(2)] * 3)
    (plan,) = hosts.place_all(1, 2, flag)
    assert plan.hosts == ("far1.invalid",)


def test_what_the_user_says_of_the_meeting_place_stays(hosted: Callable[..., Given]) -> None:
    hosts = hosted(*[gpus(2)] * 3)
    (plan,) = hosts.place_all(2, 2, "--master_port=1234")
    assert dict(plan.ranks[0].environment)["MASTER_PORT"] == "1234"


def test_the_sentence_counts_trials_and_their_hosts(hosted: Callable[..., Given]) -> None:
    pool = hosted(*[gpus(2)] * 5).pool(2, 2)
    assert pool_text(pool).startswith(
        "2 trials run at a time, each on GPUs of its own (2 hosts); "
    )


def test_jobs_of_a_queue_are_one_at_a_time_unless_more_are_asked_for() -> None:
    cluster = ClusterSpec(nodes=(Node(host="node-0", devices=(CPU,)),))
    for flags, count in (((), 1), (("--max-parallel-trials=3",), 3)):
        request = parse_request(["--launcher=sbatch", "--num_nodes=1", *flags, "train.py"])
        pool = find_pool(request, cluster)
        assert pool.room(pool.usual) == count
        assert pool.blame(["node-0", "node-0"]) == ()
        assert pool.can_hold(pool.usual)


def test_without_a_hostfile_this_machine_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    request = parse_request(["--standalone", "train.py"])
    assert not find_pool(
        request, ClusterSpec(nodes=(Node(host="here", devices=(CPU,)),))
    ).is_on_hosts


class TestInAnAllocation:
    @pytest.fixture(autouse=True)
    def allocation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "16(x2),32")
        monkeypatch.delenv("SLURM_STEP_ID", raising=False)
        monkeypatch.setattr(slurm, "_gives_gpus", lambda: True)

    def test_slurm_gives_each_trial_its_cores_and_gpus(self, hosted: Callable[..., Given]) -> None:
        hosts = hosted(*[gpus(4)] * 2)
        plans = hosts.place_all(1, 1, "--launcher=slurm")
        assert {plan.step for plan in plans} == {StepSize(cores=4, gpus=1)}
        assert {gpus for place in places(plans) for _, gpus in place} == {None}

    def test_inside_a_step_trials_share_what_it_has(
        self, hosted: Callable[..., Given], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_STEP_ID", "0")
        plans = hosted(*[gpus(4)] * 2).place_all(1, 2, "--launcher=slurm")
        assert {plan.step for plan in plans} == {None}
        assert places(plans)[0] == [("far1.invalid", "0,1")]
