import pytest

from autoconf_launch.autotuner.mixed import MachineKind, sub_clusters
from autoconf_launch.autotuner.mixed.kinds import usd_per_hour
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import machine


def kind(count: int, usd: float | None = 1.0) -> MachineKind:
    return MachineKind(
        name="4xT4-16GB",
        machine=machine("T4", gpus_per_node=4),
        count=count,
        memory_bytes=15e9,
        usd_per_hour=usd,
    )


def test_parts_of_a_cluster_have_any_number_of_each_kind_but_none() -> None:
    found = sub_clusters([kind(1), kind(2)]).tolist()
    assert found == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert len(sub_clusters([kind(8), kind(8)])) == 80
    with pytest.raises(ConfigError, match=r"has 12,166 parts .* fewer of them"):
        sub_clusters([kind(22), kind(22), kind(22)])


def test_a_part_costs_what_its_nodes_do() -> None:
    assert usd_per_hour([kind(3, 2.0), kind(1, 5.0)], (3, 1)) == 11.0
    kinds = [kind(3, 2.0), kind(1, None)]
    assert usd_per_hour(kinds, (3, 0)) == 6.0
    assert usd_per_hour(kinds, (3, 1)) is None
