from dataclasses import replace

import pytest

from autoconf_launch.core import HardwareError
from autoconf_launch.launcher.estimates.training_choice import choose_cluster, machine_of
from autoconf_launch.launcher.machine.discover import (
    available_memory_bytes,
    host_memory_bytes,
)
from autoconf_launch.launcher.machine.this_machine import is_cpu, local_cluster
from autoconf_launch.tuning_spaces.clusters import parse_cluster

from ..conftest import Driver

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"


def test_the_gpus_that_are_found_are_those_of_the_table(driver: Driver) -> None:
    driver(81559, 81559, names=(H100, H100))
    usual = machine_of(parse_cluster("2xH100-SXM-80GB"))
    assert replace(machine_of(local_cluster()), host_memory_bytes=None) == usual
    assert len(choose_cluster("1xlocal").devices) == 1


def test_memory_is_what_the_driver_and_the_table_both_grant(driver: Driver) -> None:
    driver(81559, names=(H100,))
    usual = parse_cluster("H100-SXM-80GB").least_memory_bytes
    assert local_cluster().least_memory_bytes == usual
    driver(20000, names=(H100,))
    assert local_cluster().least_memory_bytes == 20000 << 20


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


def test_a_gpu_that_the_table_lacks_is_named(driver: Driver) -> None:
    driver(8192)
    with pytest.raises(HardwareError, match="NVIDIA X0, is not in our table"):
        local_cluster()


def test_without_a_gpu_a_process_has_its_share_of_the_cpu(driver: Driver) -> None:
    driver()
    alone, pair = local_cluster(), local_cluster(2)
    assert is_cpu(alone)
    assert (len(alone.devices), len(pair.devices)) == (1, 2)
    rates = [machine_of(cluster).accelerator for cluster in (alone, pair)]
    assert rates[0].half_flops_per_s == 2 * rates[1].half_flops_per_s > 1e9
    assert rates[0].memory_bytes_per_s == 2 * rates[1].memory_bytes_per_s > 1e8
