"""Launches and tunes over three hosts that are reached by ssh."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces
from .namespaces import Hosts

COMMAND = (sys.executable, "-m", "autoconf_launch.launcher.cli")
EXAMPLE = Path(__file__).parents[2] / "examples" / "01_pretrain_gpt"
MEET = """
import os, socket, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
os.write(1, f"rank {os.environ['RANK']} on {socket.gethostname()} of {int(x)}\\n".encode())
if sys.argv[-1] == "forever":
    while True:
        dist.all_reduce(x)
        time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
sys.exit(7 if sys.argv[-1] == "fails" and os.environ["RANK"] == "3" else 0)
"""
SAYS_WORDS = """
import json, os, pathlib, sys
files = [p.read_bytes() for p in pathlib.Path().rglob("*") if p.is_file()]
seen = any(os.environ["HF_TOKEN"].encode() in data for data in files)
said = [len(files) > 3, seen, os.environ["HF_TOKEN"][:5], sys.argv[1:]]
os.write(1, (json.dumps(said) + chr(10)).encode())
"""
WORDS = ["--", "-x", "$(id)", "a'b\"c", "line\nline", "%j %N", "*", ";", "é"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip") or not Path("/usr/sbin/sshd").exists(),
        reason="needs root, iproute2 and openssh-server",
    ),
]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    found = namespaces.start(tmp_path_factory.mktemp("hosts"), count=3, slots=2)
    yield found
    namespaces.stop(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "meet.py"
    path.write_text(MEET)
    return path


def launch(hosts: Hosts, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    flags = (*hosts.flags, "--no_local_rank")
    command = (*COMMAND, *flags, str(script), *words)
    return subprocess.run(
        command, capture_output=True, text=True, cwd=script.parent, timeout=120, check=False
    )


def test_ranks_of_all_hosts_meet(hosts: Hosts, script: Path) -> None:
    done = launch(hosts, script)
    first, second, third = hosts.names
    placed = [first, first, second, second, third, third]
    expected = [f"rank {rank} on {host} of 6" for rank, host in enumerate(placed)]
    assert (done.returncode, sorted(done.stdout.split("\n"))[1:]) == (0, expected), done.stderr


def test_the_code_of_a_rank_that_fails_is_the_launches(hosts: Hosts, script: Path) -> None:
    assert launch(hosts, script, "fails").returncode == 7
    assert hosts.are_idle_within(5)


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_lost_host_is_named_and_nothing_is_left(hosts: Hosts, script: Path, how: str) -> None:
    flags = (*hosts.flags, "--no_local_rank")
    command = (*COMMAND, *flags, str(script), "forever")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parent
    ) as process:
        assert process.stdout
        assert process.stderr
        assert "of 6" in process.stdout.readline()
        getattr(hosts, how)(hosts.names[1])
        lost_s = time.monotonic()
        assert process.wait(30) == 137
        took_s = time.monotonic() - lost_s
        assert f"warning: Host {hosts.names[1]} " in process.stderr.read()
    assert took_s < 15
    assert hosts.are_idle_within(15 - took_s)


def test_ranks_die_with_a_killed_launcher(hosts: Hosts, script: Path) -> None:
    flags = (*hosts.flags, "--no_local_rank")
    command = (*COMMAND, *flags, str(script), "forever")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=script.parent
    ) as process:
        assert process.stdout
        assert "of 6" in process.stdout.readline()
        process.kill()
    assert hosts.are_idle_within(15)


def start_tune(hosts: Hosts, folder: Path, *flags: str) -> subprocess.Popen[str]:
    for name in ("train.py", "config.json"):
        shutil.copy(EXAMPLE / name, folder)
    config = json.loads((folder / "config.json").read_text())
    config["zero_optimization"] = {"stage": [0, 1]}
    (folder / "config.json").write_text(json.dumps(config))
    words = (*hosts.flags, "--num_gpus", "1", "--tuner_num_trials", "2", "--soak-steps", "0")
    words += ("--effort", "quick")
    return subprocess.Popen(
        (*COMMAND, "--autotuning=tune", *words, *flags, "train.py", "--config", "config.json"),
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # both hosts have the same cores
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def test_a_tune_over_hosts_writes_its_results_here(hosts: Hosts, tmp_path: Path) -> None:
    with start_tune(hosts, tmp_path, "--num_nodes", "2") as process:
        _, error = process.communicate(timeout=550)
    assert process.returncode == 0, error
    summary = json.loads((tmp_path / "autotuning_results" / "summary.json").read_text())
    journal = (tmp_path / "autotuning_results" / "journal.jsonl").read_text()
    assert summary["winner"] is not None
    assert '"world_size":2' in journal.replace(" ", "")
    assert hosts.are_idle_within(5)


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_tune_that_needs_a_host_which_is_lost_ends_and_names_it(
    hosts: Hosts, tmp_path: Path, how: str
) -> None:
    journal = tmp_path / "autotuning_results" / "journal.jsonl"
    with start_tune(hosts, tmp_path, "--num_nodes", "3") as process:
        while not (
            journal.exists()
            and '"started"' in journal.read_text()
            and hosts.run_script("train.py")
        ):
            assert process.poll() is None
            time.sleep(0.1)
        getattr(hosts, how)(hosts.names[1])
        lost_s = time.monotonic()
        _, error = process.communicate(timeout=60)
    assert time.monotonic() < lost_s + 15
    assert process.returncode == 4
    assert f"needs 3 hosts, but too few are left: {hosts.names[1]} failed twice." in error
    assert hosts.are_idle_within(lost_s + 15 - time.monotonic())
