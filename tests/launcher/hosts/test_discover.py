"""The cluster of a launch: devices of this machine, and hosts."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import ClusterSpec, ConfigError, HardwareError
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.machine import is_this_machine, usable_cores

from ..conftest import Driver

HERE = socket.gethostname()
HEARD: list[str] = []
"""Texts of the last cluster that was found."""


def cluster(*flags: str) -> ClusterSpec:
    heard: list[Event] = []
    found = find_cluster(parse_request([*flags, "train.py"]), heard.append)
    HEARD[:] = [event.text for event in heard if isinstance(event, Note)]
    return found


def slots(*flags: str) -> list[int]:
    return [device.slot for device in cluster(*flags).devices]


@pytest.fixture
def hostfile(tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> str:
    """Named ``hosts`` in the working directory."""
    driver()
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("localhost slots=2\nfar.invalid slots=3\n")
    return "hosts"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", [0]),
        ("--num_gpus=3", [0, 1, 2]),
        ("--include localhost:1,3", [1, 3]),
        (f"--include {HERE}:1", [1]),
        ("--include 127.0.0.1:1", [1]),
        ("--nproc_per_node=auto", list(range(len(os.sched_getaffinity(0))))),
        ("--hostfile hosts --num_nodes=1", [0, 1]),
    ],
)
@pytest.mark.usefixtures("hostfile")
def test_without_gpus_processes_are_slots(flags: str, found: list[int]) -> None:
    assert slots(*flags.split()) == found


@pytest.mark.usefixtures("hostfile")
def test_processes_of_a_cpu_share_its_cores_and_leave_no_host_memory_beside_theirs() -> None:
    count = usable_cores() + 1
    found = cluster(f"--num_gpus={count}", "--memory_limit=1MB")
    assert {device.memory_bytes for device in found.devices} == {10**6}
    assert found.least_host_memory_bytes == 0
    (text,) = HEARD
    assert f"{count} processes, which share {count - 1} cores" in text


@pytest.mark.parametrize(
    ("error", "flags", "says"),
    [
        (HardwareError, "--nproc_per_node=gpu", "no GPU is visible"),
        (ConfigError, "--exclude localhost", "leaves no slot"),
        (ConfigError, "--hostfile hosts --no_ssh", "--node_rank K, from 0 to 1"),
        (
            ConfigError,
            "--hostfile hosts --no_ssh --node_rank=2",
            "--node_rank is 2, but must be from 0 to 1",
        ),
        (
            ConfigError,
            "--hostfile hosts --node_rank=0 --autotuning=tune",
            "omit --no_ssh and --node_rank",
        ),
        (ConfigError, "--hostfile hosts --num_gpus=3", "host localhost has 2 slots"),
        (
            ConfigError,
            "--hostfile hosts --num_nodes=3",
            "--num_nodes is 3, but the hostfile names 2 hosts",
        ),
        (ConfigError, "--hostfile absent", "does not exist"),
        (ConfigError, "--hostfile hosts --nproc_per_node=auto", "says what each host has"),
        (ConfigError, "--num_nodes=2", "--hostfile FILE, or start each host with"),
    ],
)
@pytest.mark.usefixtures("hostfile")
def test_hosts_or_devices_that_are_not_there_are_refused(
    error: type[Exception], flags: str, says: str
) -> None:
    with pytest.raises(error, match=says):
        cluster(*flags.split())


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [
        (
            "--hostfile hosts --no_ssh --node_rank=1",
            [("localhost", 2), ("far.invalid", 3)],
        ),
        (
            "--hostfile hosts --num_gpus=1 --no_ssh --node_rank=0",
            [("localhost", 1), ("far.invalid", 1)],
        ),
    ],
)
@pytest.mark.usefixtures("hostfile")
def test_by_hand_every_host_counts(flags: str, nodes: list[tuple[str, int]]) -> None:
    found = cluster(*flags.split()).nodes
    assert [(node.host, len(node.devices)) for node in found] == nodes


def test_several_hosts_without_a_hostfile_need_a_number_and_an_address(driver: Driver) -> None:
    driver()
    found = cluster("--nnodes=2", "--nproc_per_node=3", "--node_rank=1", "--master_addr=10.0.0.1")
    assert [len(node.devices) for node in found.nodes] == [3, 3]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_a_host_that_cannot_be_reached_is_named(hostfile: str) -> None:
    with pytest.raises(HardwareError, match=r"Host far\.invalid closed the connection \(ssh"):
        cluster("--hostfile", hostfile)


def test_an_engine_that_is_not_installed_is_refused(
    hostfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="--launcher pdsh needs pdsh, which is not install"):
        cluster("--hostfile", hostfile, "--launcher=pdsh")


def test_two_names_of_this_machine_are_not_two_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.1 slots=1\n")
    with pytest.raises(ConfigError, match="are both this machine"):
        cluster("--hostfile", str(tmp_path / "hosts"))


@pytest.mark.parametrize(
    ("visible", "flags", "found"),
    [
        (None, "", [(0, "GPU-0abc-0"), (1, "GPU-1abc-1"), (2, "GPU-2abc-2"), (3, "GPU-3abc-3")]),
        (None, "--num_gpus=2", [(0, "GPU-0abc-0"), (1, "GPU-1abc-1")]),
        (None, "--include localhost:1,3", [(1, "GPU-1abc-1"), (3, "GPU-3abc-3")]),
        (None, "--exclude localhost:1,2", [(0, "GPU-0abc-0"), (3, "GPU-3abc-3")]),
        ("3,1", "--num_gpus=2", [(3, "GPU-3abc-3"), (1, "GPU-1abc-1")]),
        ("2,3", "--hostfile hosts --include localhost", [(2, "GPU-2abc-2"), (3, "GPU-3abc-3")]),
    ],
)
def test_gpus_that_are_visible_and_requested_are_used_in_their_order(
    visible: str | None,
    flags: str,
    found: list[tuple[int, str]],
    hostfile: str,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver(1, 2, 3, 4)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices = cluster(*flags.split()).devices
    assert [(device.slot, device.visible_as) for device in devices] == found
    assert [device.memory_bytes for device in devices] == [(slot + 1) << 20 for slot, _ in found]


@pytest.mark.parametrize(
    ("visible", "found"), [(None, ["0", "1", "2"]), ("GPU-2a, 0", ["GPU-2a", "0"])]
)
def test_alike_gpus_have_numbers_which_scripts_can_read_or_the_users_words(
    visible: str | None, found: list[str], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(1, 1, 1, names=["NVIDIA L4"] * 3)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.visible_as for device in cluster().devices] == found


def test_a_filter_chooses_among_the_visible_ones_and_that_is_said(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(1, 2, 3, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert slots("-i", "localhost:2") == [2]
    holds, order = HEARD
    assert holds.startswith("CUDA_VISIBLE_DEVICES=1,2 holds: ")
    assert order.startswith("CUDA_VISIBLE_DEVICES=1,2 means GPU 1 (NVIDIA X1), 2 (NVIDIA X2)")
    with pytest.raises(ConfigError, match="slot 0 of localhost, which has: 1, 2"):
        cluster("--include", "localhost:0")


@pytest.mark.parametrize(
    ("visible", "flags", "says"),
    [
        (None, "--num_gpus=3", "is 3, but 2 GPUs are visible"),
        ("0", "--hostfile hosts --include localhost", "localhost 2 slots, but 1 GPU is visible"),
        *(
            (value, "", "names GPU 0 twice, .* name each GPU once")
            for value in ("0,0", "0,GPU-0a")
        ),
        *((value, "", f"begins with {value}") for value in ("7", "GPU-x", "MIG-x")),
    ],
)
def test_gpus_that_are_not_there_are_no_reason_to_use_the_cpu(
    visible: str | None,
    flags: str,
    says: str,
    hostfile: str,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver(1, 2)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(HardwareError, match=says):
        cluster(*flags.split())


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_visible_devices_that_name_none_mean_the_cpu(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    driver(1, 2)
    assert {device.visible_as for device in cluster("--nproc_per_node=cpu").devices} == {""}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert cluster().devices[0].name.startswith("cpu")


def test_a_gpu_that_shares_the_machines_memory_has_some(driver: Driver) -> None:
    driver("[N/A]")
    assert cluster().least_memory_bytes > 0


USED = "81559, 50000, Default, Disabled"
H100 = ("NVIDIA H100 80GB HBM3",)


def answer_first(cases: str) -> None:
    """Let the driver's program answer some arguments otherwise."""
    program = Path(shutil.which("nvidia-smi") or "")
    rows = program.read_text().removeprefix("#!/bin/sh\n")
    program.write_text(f"#!/bin/sh\ncase $1 in {cases} esac\n{rows}")


def test_a_launch_has_what_is_free_of_a_gpu_in_use_and_says_so_once(driver: Driver) -> None:
    driver(USED, names=H100)
    found = cluster()
    assert found.least_memory_bytes == 50000 << 20
    assert found.devices[0].memory_bytes == 81559 << 20
    (text,) = HEARD
    assert text.startswith("GPU 0: 30.8 of 79.6 GiB are used by processes that the driver does")
    assert text.endswith("48.8 GiB are left for this launch.")
    limits = ("--memory_limit=40GiB", "--memory_limit=60GiB")
    assert [cluster(limit).least_memory_bytes >> 20 for limit in limits] == [40960, 50000]


def test_gpus_with_more_or_less_in_use_are_of_one_kind(driver: Driver) -> None:
    driver(USED, "81559, 81000, Default, Disabled", names=H100 * 2)
    first, second = cluster().devices
    assert replace(first, slot=1) == second
    assert not first.is_like(second)


def test_a_gpu_for_one_process_that_has_one_is_named(driver: Driver) -> None:
    driver("81559, 80000, Exclusive_Process, Disabled", names=H100)
    answer_first("*apps*) echo 'GPU-0abc-0, 12, 900, python'; exit;;")
    assert cluster().devices[0].exclusive
    (text,) = HEARD
    assert "GPU 0 allows one process at a time (compute mode Exclusive_Process)" in text
    assert "pid 12 (python)" in text


def test_a_prohibited_gpu_gets_no_rank(driver: Driver) -> None:
    prohibited, usable = "1, 1, Prohibited, [N/A]", "1, 1, Default, [N/A]"
    driver(prohibited, usable, names=H100 * 2)
    assert slots() == [1]
    driver(prohibited, names=H100)
    with pytest.raises(HardwareError, match="GPU 0 is in compute mode Prohibited"):
        cluster()


@pytest.mark.parametrize(
    ("visible", "found"),
    [(None, ["MIG-a"]), ("MIG-b", ["MIG-b"]), ("0", ["MIG-a"]), ("1", ["GPU-1abc-1"])],
)
def test_a_slice_of_a_card_has_its_own_memory_and_name(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str | None, found: Sequence[str]
) -> None:
    driver("81559, [N/A], Default, Enabled", "81559, 81000, Default, Disabled", names=H100 * 2)
    listing = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0abc-0)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-a)\n"
        "  MIG 1g.10gb     Device  1: (UUID: MIG-b)\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1abc-1)\n"
    )
    answer_first(f"-L) cat <<END\n{listing}END\nexit;; -q) exit 3;;")
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (device,) = cluster().devices
    assert [device.visible_as] == found
    if visible != "1":
        assert device.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert 9 * 2**30 < device.memory_bytes < 10 * 2**30
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    with pytest.raises(HardwareError, match="a process sees one MIG slice at most"):
        cluster("--num_gpus=2")


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        *((host, True) for host in ("localhost", "127.0.0.1", "127.0.1.1", "::1")),
        ("far.invalid", False),
    ],
)
def test_loopback_is_this_machine(host: str, is_here: bool) -> None:
    assert is_this_machine(host) is is_here


@pytest.mark.parametrize(("nodes", "is_said"), [("3", True), ("1", False)])
def test_an_allocation_that_is_not_used_is_named_with_how_to_use_it(
    monkeypatch: pytest.MonkeyPatch, nodes: str, is_said: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", nodes)
    cluster()
    assert any("add --launcher slurm to use all" in text for text in HEARD) is is_said
