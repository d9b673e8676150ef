from dataclasses import replace

import pytest

from autoconf_launch.core import HardwareError
from autoconf_launch.launcher.estimates import choose_cluster, has_rates, machine_of, require_rates
from autoconf_launch.launcher.hosts import local_cluster
from autoconf_launch.launcher.machine import available_memory_bytes, host_memory_bytes, is_cpu
from autoconf_launch.tuning_spaces import parse_cluster

from ..conftest import Driver

TI = "NVIDIA GeForce RTX 4060 Ti"
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"


def test_the_gpus_that_are_found_are_those_of_the_table(driver: Driver) -> None:
    driver(81559, 81559, names=(H100, H100))
    usual = machine_of(parse_cluster("2xH100-SXM-80GB"))
    assert replace(machine_of(local_cluster()), host_memory_bytes=None) == usual
    assert len(choose_cluster("1xlocal").devices) == 1


@pytest.mark.parametrize(
    ("mib", "name", "found", "rated"),
    [
        *((mib, H100, None, True) for mib in (81559, 98304)),
        (20000, H100, "part of NVIDIA H100 80GB HBM3", False),
        (16380, TI, "RTX-4060-Ti-16GB", True),
        (8188, TI, "RTX-4060-Ti-8GB", True),
        (9856, "NVIDIA A100-SXM4-80GB", "part of NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_memory_is_what_the_driver_reports_and_tells_cards_of_one_name_apart(
    driver: Driver, mib: int, name: str, found: str | None, rated: bool
) -> None:
    driver(mib, names=(name,))
    cluster = local_cluster()
    assert cluster.least_memory_bytes == mib << 20
    assert cluster.least_host_memory_bytes == host_memory_bytes()
    assert host_memory_bytes() >= available_memory_bytes() > 0
    assert found is None or cluster.devices[0].name == found
    assert has_rates(cluster) is rated
    with pytest.raises(HardwareError, match="2"):
        local_cluster(2)


def test_different_gpus_are_named(driver: Driver) -> None:
    driver(81559, 40960, names=(H100, A100))
    with pytest.raises(HardwareError, match=r"different GPUs .*A100.*H100"):
        local_cluster()


def test_a_gpu_that_the_table_lacks_has_memory_but_no_times(driver: Driver) -> None:
    driver(8192)
    cluster = local_cluster()
    assert (cluster.devices[0].name, cluster.least_memory_bytes) == ("NVIDIA X0", 8192 << 20)
    assert not has_rates(cluster)
    with pytest.raises(HardwareError, match="NVIDIA X0, is not in our table"):
        require_rates(cluster)


def test_without_a_gpu_a_process_has_its_share_of_the_cpu(driver: Driver) -> None:
    driver()
    alone, pair = local_cluster(), local_cluster(2)
    assert is_cpu(alone)
    assert machine_of(pair).host_memory_bytes == 0  # there is no host to offload to
    assert (len(alone.devices), len(pair.devices)) == (1, 2)
    rates = [machine_of(cluster).accelerator for cluster in (alone, pair)]
    assert rates[0].half_flops_per_s == 2 * rates[1].half_flops_per_s > 1e9
    assert rates[0].memory_bytes_per_s == 2 * rates[1].memory_bytes_per_s > 1e8
