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


@pytest.mark.parametrize("mib", [81559, 98304, 20000])
def test_memory_is_what_the_driver_reports(driver: Driver, mib: int) -> None:
    driver(mib, names=(H100,))
    assert local_cluster().least_memory_bytes == mib << 20


def test_cards_of_one_name_are_told_apart_by_their_memory(driver: Driver) -> None:
    driver(16380, 16380, names=(TI, TI))
    (name,) = {device.name for device in local_cluster().devices}
    assert name == "RTX-4060-Ti-16GB"
    driver(8188, names=(TI,))
    assert local_cluster().devices[0].name == "RTX-4060-Ti-8GB"


def test_the_host_memory_of_this_machine_is_known(driver: Driver) -> None:
    driver(81559, names=(H100,))
    assert local_cluster().least_host_memory_bytes == host_memory_bytes()
    assert host_memory_bytes() >= available_memory_bytes() > 0


def test_processes_of_a_cpu_have_no_host_to_offload_to(driver: Driver) -> None:
    driver()
    assert machine_of(local_cluster(2)).host_memory_bytes == 0


def test_more_gpus_than_there_are_are_refused(driver: Driver) -> None:
    driver(81559, names=(H100,))
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


def test_a_slice_of_a_card_has_not_the_cards_rates(driver: Driver) -> None:
    driver(9856, names=("NVIDIA A100-SXM4-80GB",))
    assert local_cluster().devices[0].name == "part of NVIDIA A100-SXM4-80GB"
    assert not has_rates(local_cluster())


def test_without_a_gpu_a_process_has_its_share_of_the_cpu(driver: Driver) -> None:
    driver()
    alone, pair = local_cluster(), local_cluster(2)
    assert is_cpu(alone)
    assert (len(alone.devices), len(pair.devices)) == (1, 2)
    rates = [machine_of(cluster).accelerator for cluster in (alone, pair)]
    assert rates[0].half_flops_per_s == 2 * rates[1].half_flops_per_s > 1e9
    assert rates[0].memory_bytes_per_s == 2 * rates[1].memory_bytes_per_s > 1e8
