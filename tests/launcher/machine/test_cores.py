import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import CORES
from autoconf_launch.launcher.machine import cores_of_ranks, split_cores
from autoconf_launch.launcher.machine.cores import physical_cores
from autoconf_launch.launcher.request import CoreBinding

read_cores = CORES.read


def test_cores_and_ranges_are_listed() -> None:
    assert read_cores("0,2-4,6,8-9") == (0, 2, 3, 4, 6, 8, 9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0,2-6,5-9", "5-9 does not lie above core 6"),
        ("8,2-6", "2-6 does not lie above core 8"),
        ("1,6-2", "6-2 runs backwards"),
        ("1,1", "does not lie above"),
        ("", "neither a core nor a range"),
        ("1,", "neither a core nor a range"),
        ("a-b", "neither a core nor a range"),
        ("-1", "neither a core nor a range"),
    ],
)
def test_overlap_disorder_and_nonsense_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_cores(text)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_a_written_list_reads_back(cores: set[int]) -> None:
    assert read_cores(",".join(map(str, sorted(cores)))) == tuple(sorted(cores))


@given(st.lists(st.integers(), min_size=1, max_size=40, unique=True), st.integers(1, 40))
def test_shares_are_equal_and_disjoint(cores: list[int], ranks: int) -> None:
    shares = split_cores(tuple(cores), min(ranks, len(cores)))
    assert len({len(share) for share in shares}) == 1
    assert len({core for share in shares for core in share}) == sum(map(len, shares))


def test_a_core_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match="names core 40000, but this process may use only"):
        cores_of_ranks(CoreBinding(cores=(40000,)), 1)


def test_more_ranks_than_cores_are_refused() -> None:
    own = tuple(sorted(os.sched_getaffinity(0)))
    with pytest.raises(ConfigError, match="each rank needs one"):
        cores_of_ranks(CoreBinding(cores=own), len(own) + 1)


def test_without_a_list_all_physical_cores_are_shared() -> None:
    own = sorted(os.sched_getaffinity(0))
    assert cores_of_ranks(CoreBinding(), 1) == (physical_cores(own),)


def test_a_physical_core_counts_once(tmp_path: Path) -> None:
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores([0, 1, 2, 3], tmp_path) == (0, 1)
    assert physical_cores([1, 2, 3], tmp_path) == (1, 2)


def test_without_a_topology_every_core_counts(tmp_path: Path) -> None:
    assert physical_cores([0, 5], tmp_path) == (0, 5)
