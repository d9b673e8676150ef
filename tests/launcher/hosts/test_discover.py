import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import ClusterSpec, ConfigError, HardwareError
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.machine import is_this_machine, usable_cores

from ..conftest import Driver


def cluster(*flags: str) -> ClusterSpec:
    return find_cluster(parse_request([*flags, "train.py"]))


def slots(*flags: str) -> list[int]:
    return [device.slot for device in cluster(*flags).devices]


def texts(heard: list[Event]) -> list[str]:
    return [event.text for event in heard if isinstance(event, Note)]


@pytest.fixture
def cpu_only(driver: Driver) -> None:
    driver()


@pytest.fixture
def hostfile(tmp_path: Path, driver: Driver) -> str:
    driver()
    path = tmp_path / "hosts"
    path.write_text("localhost slots=2\nfar.invalid slots=3\n")
    return str(path)


@pytest.mark.usefixtures("cpu_only")
class TestWithoutGpus:
    def test_one_process_is_the_default(self) -> None:
        assert slots() == [0]

    def test_processes_of_a_cpu_leave_no_host_memory_beside_theirs(self) -> None:
        assert cluster().least_host_memory_bytes == 0

    def test_processes_are_slots(self) -> None:
        assert slots("--num_gpus=3") == [0, 1, 2]

    def test_more_processes_than_cores_are_said_to_share_them(self) -> None:
        heard: list[Event] = []
        count = usable_cores() + 1
        find_cluster(parse_request([f"--num_gpus={count}", "train.py"]), heard.append)
        (note,) = [event for event in heard if isinstance(event, Note)]
        assert f"{count} processes, which share {count - 1} cores" in note.text

    def test_included_slots_are_used_as_given(self) -> None:
        assert slots("--include", "localhost:1,3") == [1, 3]

    def test_this_machine_may_be_called_by_any_of_its_names(self) -> None:
        assert slots("--include", f"{socket.gethostname()}:1") == [1]
        assert slots("--include", "127.0.0.1:1") == [1]

    def test_torchruns_words_count_cores(self) -> None:
        assert len(slots("--nproc_per_node=auto")) == len(os.sched_getaffinity(0))

    def test_the_word_gpu_needs_one(self) -> None:
        with pytest.raises(HardwareError, match="no GPU is visible"):
            cluster("--nproc_per_node=gpu")

    def test_excluding_the_only_slot_leaves_nothing(self) -> None:
        with pytest.raises(ConfigError, match="leaves no slot"):
            cluster("--exclude", "localhost")

    def test_a_memory_limit_holds_for_each_slot(self) -> None:
        devices = cluster("--num_gpus=2", "--memory_limit=1MB").devices
        assert [device.memory_bytes for device in devices] == [10**6, 10**6]


class TestWithGpus:
    def test_all_visible_ones_are_used(self, driver: Driver) -> None:
        driver(1000, 2000)
        assert slots() == [0, 1]

    def test_the_first_are_taken_when_fewer_are_asked_for(self, driver: Driver) -> None:
        driver(1000, 2000, 3000)
        memory = [device.memory_bytes for device in cluster("--num_gpus=2").devices]
        assert memory == [1000 << 20, 2000 << 20]

    def test_included_ones_are_those_devices(self, driver: Driver) -> None:
        driver(1, 2, 3, 4)
        devices = cluster("--include", "localhost:1,3").devices
        assert [(d.slot, d.visible_as, d.memory_bytes >> 20) for d in devices] == [
            (1, "GPU-1abc-1", 2),
            (3, "GPU-3abc-3", 4),
        ]

    def test_alike_ones_have_numbers_which_scripts_can_read(self, driver: Driver) -> None:
        driver(1, 1, names=["NVIDIA L4"] * 2)
        assert [device.visible_as for device in cluster().devices] == ["0", "1"]

    def test_excluded_ones_are_left_out(self, driver: Driver) -> None:
        driver(1, 2, 3)
        assert slots("--exclude", "localhost:1") == [0, 2]

    def test_more_than_are_visible_are_refused(self, driver: Driver) -> None:
        driver(1, 2)
        with pytest.raises(HardwareError, match="is 3, but 2 GPUs are visible"):
            cluster("--num_gpus=3")

    def test_visible_devices_are_kept_in_their_order(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver(1, 2, 3, 4)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
        assert slots("--num_gpus=2") == [3, 1]

    def test_a_device_may_be_named_by_the_beginning_of_its_uuid(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver(1, 1, 1, names=["NVIDIA L4"] * 3)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2a, 0")
        devices = cluster().devices
        assert [(d.slot, d.visible_as) for d in devices] == [(2, "GPU-2a"), (0, "0")]

    def test_a_filter_chooses_among_the_visible_ones_and_that_is_said(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver(1, 2, 3, 4)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
        heard: list[Event] = []
        found = find_cluster(parse_request(["-i", "localhost:2", "t.py"]), heard.append)
        assert [device.slot for device in found.devices] == [2]
        holds, order = texts(heard)
        assert holds.startswith("CUDA_VISIBLE_DEVICES=1,2 holds: ")
        assert order.startswith("CUDA_VISIBLE_DEVICES=1,2 means GPU 1 (NVIDIA X1), 2 (NVIDIA X2)")

    def test_a_filter_cannot_name_a_hidden_one(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver(1, 2, 3, 4)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
        with pytest.raises(ConfigError, match="slot 0 of localhost, which has: 1, 2"):
            cluster("--include", "localhost:0")

    @pytest.mark.parametrize("value", ["0,0", "0,GPU-0abc"])
    def test_one_gpu_is_not_two(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        driver(1, 2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        with pytest.raises(HardwareError, match=r"names GPU 0 twice, .* name each GPU once"):
            cluster()

    @pytest.mark.parametrize("value", ["7", "GPU-x", "MIG-x"])
    def test_visible_devices_that_are_not_here_are_no_reason_to_use_the_cpu(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        driver(1, 2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        with pytest.raises(HardwareError, match=f"begins with {value}"):
            cluster()

    @pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
    def test_visible_devices_that_name_none_mean_the_cpu(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        driver(1, 2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert cluster().devices[0].name.startswith("cpu")

    def test_the_word_cpu_hides_them(self, driver: Driver) -> None:
        driver(1, 2)
        assert {device.visible_as for device in cluster("--nproc_per_node=cpu").devices} == {""}

    def test_one_that_shares_the_machines_memory_has_some(self, driver: Driver) -> None:
        driver("[N/A]")
        assert cluster().least_memory_bytes > 0

    def test_a_hostfile_may_not_give_more_slots_than_there_are(
        self, driver: Driver, hostfile: str
    ) -> None:
        driver(1)
        with pytest.raises(HardwareError, match="localhost 2 slots, but 1 GPU is visible"):
            cluster("--hostfile", hostfile, "--include", "localhost")

    def test_a_hostfile_s_slots_are_the_first_visible_ones(
        self, driver: Driver, hostfile: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver(1, 2, 3, 4)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
        assert slots("--hostfile", hostfile, "--include", "localhost") == [2, 3]


USED = ("81559, 50000, Default, Disabled",)
H100 = ("NVIDIA H100 80GB HBM3",)


class TestWithGpusInUse:
    def test_a_launch_has_what_is_free_and_says_so_once(self, driver: Driver) -> None:
        driver(*USED, names=H100)
        heard: list[Event] = []
        found = find_cluster(parse_request(["t.py"]), heard.append)
        assert found.least_memory_bytes == 50000 << 20
        assert found.devices[0].memory_bytes == 81559 << 20
        assert texts(heard) == [
            "GPU 0: 30.8 of 79.6 GiB are used by processes that the driver does not name; "
            "48.8 GiB are left for this launch."
        ]

    def test_a_limit_counts_if_it_is_less_than_what_is_free(self, driver: Driver) -> None:
        driver(*USED, names=H100)
        limits = ("--memory_limit=40GiB", "--memory_limit=60GiB")
        assert [cluster(limit).least_memory_bytes >> 20 for limit in limits] == [40960, 50000]

    def test_gpus_with_more_or_less_in_use_are_of_one_kind(self, driver: Driver) -> None:
        driver(*USED, "81559, 81000, Default, Disabled", names=H100 * 2)
        first, second = cluster().devices
        assert replace(first, slot=1) == second
        assert not first.is_like(second)

    def test_a_gpu_for_one_process_that_has_one_is_named(
        self, driver: Driver, tmp_path: Path
    ) -> None:
        driver("81559, 80000, Exclusive_Process, Disabled", names=H100)
        program = Path(shutil.which("nvidia-smi") or "")
        rows = program.read_text()
        program.write_text(
            "#!/bin/sh\ncase $1 in *apps*) echo 'GPU-0abc-0, 12, 900, python'; exit;; esac\n"
            + rows
        )
        heard: list[Event] = []
        found = find_cluster(parse_request(["t.py"]), heard.append)
        assert found.devices[0].exclusive
        (text,) = texts(heard)
        assert (
            "GPU 0 allows one process at a time (compute mode Exclusive_Process), and it has"
            in text
        )
        assert "pid 12 (python)" in text

    def test_a_prohibited_gpu_gets_no_rank(self, driver: Driver) -> None:
        prohibited, usable = "1, 1, Prohibited, [N/A]", "1, 1, Default, [N/A]"
        driver(prohibited, usable, names=H100 * 2)
        assert slots() == [1]
        driver(prohibited, names=H100)
        with pytest.raises(HardwareError, match="GPU 0 is in compute mode Prohibited"):
            cluster()


class TestWithSlices:
    @pytest.fixture(autouse=True)
    def sliced(self, driver: Driver) -> None:
        """A card with two slices, and a card without MIG."""
        driver("81559, [N/A], Default, Enabled", "81559, 81000, Default, Disabled", names=H100 * 2)
        program = Path(shutil.which("nvidia-smi") or "")
        listing = (
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0abc-0)\n"
            "  MIG 1g.10gb     Device  0: (UUID: MIG-a)\n"
            "  MIG 1g.10gb     Device  1: (UUID: MIG-b)\n"
            "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1abc-1)\n"
        )
        rows = program.read_text().removeprefix("#!/bin/sh\n")
        program.write_text(
            f"#!/bin/sh\ncase $1 in -L) cat <<END\n{listing}END\nexit;; -q) exit 3;; esac\n{rows}"
        )

    def test_a_slice_has_its_own_memory_and_name(self) -> None:
        (device,) = cluster().devices
        assert (device.name, device.visible_as) == ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "MIG-a")
        assert 9 * 2**30 < device.memory_bytes < 10 * 2**30

    @pytest.mark.parametrize(
        ("value", "name"), [("MIG-b", "MIG-b"), ("0", "MIG-a"), ("1", "GPU-1abc-1")]
    )
    def test_it_can_be_named(self, monkeypatch: pytest.MonkeyPatch, value: str, name: str) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert [device.visible_as for device in cluster().devices] == [name]

    def test_two_ranks_cannot_have_two_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
        with pytest.raises(HardwareError, match="a process sees one MIG slice at most"):
            cluster("--num_gpus=2")


class TestWithAHostfile:
    def test_its_slots_on_this_machine_are_used(self, hostfile: str) -> None:
        assert slots("--hostfile", hostfile, "--num_nodes=1") == [0, 1]

    @pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
    def test_a_host_that_cannot_be_reached_is_named(self, hostfile: str) -> None:
        with pytest.raises(HardwareError, match=r"Host far\.invalid closed the connection \(ssh"):
            cluster("--hostfile", hostfile)

    def test_an_engine_that_is_not_installed_is_refused(
        self, hostfile: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        with pytest.raises(ConfigError, match="--launcher pdsh needs pdsh, which is not install"):
            cluster("--hostfile", hostfile, "--launcher=pdsh")

    def test_by_hand_every_host_counts(self, hostfile: str) -> None:
        found = cluster("--hostfile", hostfile, "--no_ssh", "--node_rank=1")
        assert [(node.host, len(node.devices)) for node in found.nodes] == [
            ("localhost", 2),
            ("far.invalid", 3),
        ]

    def test_by_hand_the_number_of_this_host_is_needed(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="--node_rank K, from 0 to 1"):
            cluster("--hostfile", hostfile, "--no_ssh")

    def test_the_number_of_this_host_must_be_one_of_theirs(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="--node_rank is 2, but must be from 0 to 1"):
            cluster("--hostfile", hostfile, "--no_ssh", "--node_rank=2")

    def test_several_hosts_are_tuned_from_one_of_them(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="omit --no_ssh and --node_rank"):
            cluster("--hostfile", hostfile, "--node_rank=0", "--autotuning=tune")

    def test_two_names_of_this_machine_are_not_two_hosts(self, tmp_path: Path) -> None:
        (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.1 slots=1\n")
        with pytest.raises(ConfigError, match="are both this machine"):
            cluster("--hostfile", str(tmp_path / "hosts"))

    def test_fewer_slots_may_be_asked_for_on_each_host(self, hostfile: str) -> None:
        found = cluster("--hostfile", hostfile, "--num_gpus=1", "--no_ssh", "--node_rank=0")
        assert [len(node.devices) for node in found.nodes] == [1, 1]

    def test_more_slots_than_a_host_has_are_refused(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="host localhost has 2 slots"):
            cluster("--hostfile", hostfile, "--num_gpus=3")

    def test_more_hosts_than_there_are_are_refused(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="--num_nodes is 3, but the hostfile names 2 hosts"):
            cluster("--hostfile", hostfile, "--num_nodes=3")

    def test_a_missing_one_is_no_reason_to_train_on_this_machine_alone(self) -> None:
        with pytest.raises(ConfigError, match="does not exist"):
            cluster("--hostfile", "absent")

    def test_torchruns_words_do_not_go_with_it(self, hostfile: str) -> None:
        with pytest.raises(ConfigError, match="says what each host has"):
            cluster("--hostfile", hostfile, "--nproc_per_node=auto")


@pytest.mark.usefixtures("cpu_only")
def test_several_hosts_without_a_hostfile_need_a_number_and_an_address() -> None:
    with pytest.raises(ConfigError, match="--hostfile FILE, or start each host with"):
        cluster("--num_nodes=2")
    found = cluster("--nnodes=2", "--nproc_per_node=3", "--node_rank=1", "--master_addr=10.0.0.1")
    assert [len(node.devices) for node in found.nodes] == [3, 3]


def test_a_name_that_does_not_resolve_is_another_machine() -> None:
    assert not is_this_machine("far.invalid")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(("nodes", "flags", "is_said"), [("3", [], True), ("1", [], False)])
def test_an_allocation_that_is_not_used_is_named_with_how_to_use_it(
    monkeypatch: pytest.MonkeyPatch, nodes: str, flags: list[str], is_said: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", nodes)
    heard: list[Event] = []
    find_cluster(parse_request([*flags, "train.py"]), heard.append)
    assert any("add --launcher slurm to use all" in text for text in texts(heard)) is is_said
