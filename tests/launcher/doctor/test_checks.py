"""Problems are reported of the hosts that have them, and of no others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import DOCTOR_MARK, ClusterSpec, ConfigError, Device, Node, RawConfig
from autoconf_launch.launcher.doctor import (
    HostChecks,
    KernelRates,
    LinkCheck,
    SlotCheck,
    read_blocked,
    read_checks,
)
from autoconf_launch.launcher.estimates import machine_of
from autoconf_launch.launcher.report import (
    blocked_text,
    cluster_document,
    doctor_lines,
    problems,
    require_gpus,
)
from autoconf_launch.tuning_spaces import cluster_of_document

NAMES = ("a", "b", "c")


def cluster_of(name: str = "cpu", *, emulated: bool = True, gib: int = 8) -> ClusterSpec:
    device = Device(name=name, memory_bytes=gib << 30, emulated=emulated)
    return ClusterSpec(nodes=tuple(Node(host=host, devices=(device, device)) for host in NAMES))


def slot(host: str, **changes: object) -> SlotCheck:
    usual = {"flops_per_s": 1e11, "clock_s": 0.0, "sees_folder": True}
    return SlotCheck(host=host, **{**usual, **changes})  # type: ignore[arg-type]


def link(first: str, second: str, bytes_per_s: float = 1e9) -> LinkCheck:
    return LinkCheck(hosts=(first, second), latency_s=1e-4, bytes_per_s=bytes_per_s)


LINKS = (link("a", "b"), link("a", "c"), link("b", "c"))
SLOTS = tuple(map(slot, NAMES))


def test_equal_hosts_have_nothing_wrong() -> None:
    checks = HostChecks(slots=SLOTS, links=LINKS)
    assert list(problems(checks)) == []
    assert "Nothing is wrong." in "\n".join(doctor_lines(cluster_of(), checks))


@given(st.sampled_from(NAMES), st.floats(0.05, 0.4))
def test_the_host_at_the_slow_end_of_its_links_is_named(slow: str, share: float) -> None:
    links = tuple(
        link(*one.hosts, bytes_per_s=share * 1e9 if slow in one.hosts else 1e9) for one in LINKS
    )
    (said,) = problems(HostChecks(slots=SLOTS, links=links))
    assert said.startswith(f"Host {slow} has a link of {100 * share:.0f} %")


def test_a_host_whose_one_slot_is_slow_is_named() -> None:
    slots = (*SLOTS, slot("b", flops_per_s=5e10))
    (said,) = problems(HostChecks(slots=slots, links=LINKS))
    assert said.startswith("Host b computes at 50 % of the others' pace")


def test_a_clock_that_is_off_and_a_folder_that_is_missing_are_said() -> None:
    slots = (SLOTS[0], slot("b", clock_s=-120.0), slot("c", sees_folder=False))
    clock, folder = problems(HostChecks(slots=slots, links=LINKS))
    assert clock.startswith("The clock of host b is 2 minutes behind")
    assert folder.startswith("The working directory is not there on c;")


def test_what_ranks_print_is_read_among_other_lines() -> None:
    pair = {"nodes": [0, 2], "latency_s": 1e-4, "bytes_per_s": 2e9}
    found = {"flops_per_s": 1e11, "clock_s": 0.0, "sees_folder": True}
    lines = [
        "a warning of torch",
        f"{DOCTOR_MARK}{json.dumps({'node': 2, 'pairs': [], **found})}",
        f"{DOCTOR_MARK}{json.dumps({'node': 0, 'pairs': [pair], **found})}",
    ]
    checks = read_checks("\n".join(lines), cluster_of())
    assert checks.hosts == ("a", "c")
    assert checks.links[0].hosts == ("a", "c")


def test_a_port_that_hosts_do_not_reach_is_said_once() -> None:
    printed = [{"node": 1, "blocked": [[0, 29]]}, {"node": 2, "blocked": [[0, 29], [1, 31]]}]
    lines = [f"{DOCTOR_MARK}{json.dumps(each)}" for each in (*printed, {"node": 0, "blocked": []})]
    said = blocked_text(read_blocked("\n".join(lines), cluster_of()))
    assert said.startswith(
        "Port 29 of host a is not reached from b, c. Port 31 of host b is not reached from c. "
    )


def test_a_saved_cluster_is_one_that_plan_reads_and_no_cpu() -> None:
    gpus = cluster_of("NVIDIA H100 80GB HBM3", emulated=False)
    checks = HostChecks(slots=SLOTS, links=LINKS)
    found = cluster_of_document(RawConfig(cluster_document(gpus, checks)))
    assert (len(found.nodes), len(found.devices)) == (3, 6)
    assert found.devices[0].name == "H100-SXM-80GB"
    with pytest.raises(ConfigError, match="--save writes GPUs for plan, but host a has cpu"):
        require_gpus(cluster_of())


def kernels(product: float = 3e14) -> KernelRates:
    return KernelRates(
        products=((4096, 4096, 4096, product), (64, 64, 64, 1e13)),
        attention_flops_per_s=1e14,
        attention_backward_flops_per_s=9e13,
        fp32_flops_per_s=2e13,
        memory_bytes_per_s=1.5e12,
        host_link_bytes_per_s=2e10,
        all_reduce_bytes_per_s=1e11,
        all_reduce_s=4e-5,
    )


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("NVIDIA H100 80GB HBM3", {"reached_tflops", "host_link_gb_per_s"}),
        ("Voodoo 9", {"peak_tflops", "memory_gib", "bandwidth_gb_per_s", "attention_tflops"}),
    ],
)
def test_the_slowest_slot_describes_its_gpu_and_a_known_one_keeps_its_row(
    name: str, keys: set[str]
) -> None:
    slots = [slot(host, kernels=kernels(rate)) for host in NAMES for rate in (3e14, 2.5e14)]
    checks = HostChecks(slots=tuple(slots), links=LINKS)
    document = cluster_document(cluster_of(name, emulated=False, gib=79), checks)
    node = document["nodes"][0]
    assert node["reached_tflops"] == 250
    assert keys <= node.keys()
    assert ("peak_tflops" in node) is (name == "Voodoo 9")
    gpu = machine_of(cluster_of_document(RawConfig(document))).accelerator
    assert gpu.reached * gpu.half_flops_per_s == pytest.approx(2.5e14, rel=1e-3)
    assert gpu.assumed == ()
