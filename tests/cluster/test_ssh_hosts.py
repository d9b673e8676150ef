"""Launches and tunes over three hosts that are reached by ssh, pdsh and OpenMPI."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import launching, namespaces
from .launching import COMMAND, EXAMPLE, MEET
from .namespaces import Hosts

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip") or not Path("/usr/sbin/sshd").exists(),
        reason="needs root, iproute2 and openssh-server",
    ),
]
PROGRAMS = {"ssh": "ssh", "pdsh": "pdsh", "openmpi": "mpirun"}
ENGINES = [
    pytest.param(
        engine,
        marks=pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed"),
    )
    for engine, program in PROGRAMS.items()
]
on_all = pytest.mark.parametrize("engine", ENGINES)
"""The engines that start all agents at once share a folder with their hosts."""


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    found = namespaces.start(tmp_path_factory.mktemp("hosts"), count=3, slots=2)
    yield found
    namespaces.stop(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return launching.make_script(tmp_path)


def launch(hosts: Hosts, engine: str, script: Path, *words: str) -> subprocess.Popen[str]:
    flags = hosts.flags_of(engine)
    return launching.launch(flags, script, *words, variables=hosts.variables)


@on_all
def test_ranks_of_all_hosts_meet(hosts: Hosts, script: Path, engine: str) -> None:
    with launch(hosts, engine, script) as process:
        printed, said = process.communicate(timeout=120)
    first, second, third = hosts.names
    placed = [first, first, second, second, third, third]
    expected = [f"rank {rank} on {host} of 6" for rank, host in enumerate(placed)]
    assert (process.returncode, sorted(printed.split("\n"))[1:]) == (0, expected), said
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


@on_all
def test_words_of_a_script_pass_whole(hosts: Hosts, script: Path, engine: str) -> None:
    script.write_text(
        "import json, os, sys; os.write(1, f'{json.dumps(sys.argv[1:])}\\n'.encode())"
    )
    words = ["--", "-x", "$(id)", "a'b\"c", "line\nline", "%n %h", "*", ";", "é"]
    with launch(hosts, engine, script, *words) as process:
        printed, said = process.communicate(timeout=120)
    assert [json.loads(line) for line in printed.splitlines()] == [words] * 6, said


@on_all
def test_the_code_of_a_rank_that_fails_is_the_launches(
    hosts: Hosts, script: Path, engine: str
) -> None:
    with launch(hosts, engine, script, "fails") as process:
        process.communicate(timeout=120)
    assert process.returncode == 7
    assert hosts.are_idle_within(5)


@pytest.mark.parametrize(
    ("engine", "how"), [(engine, "kill") for engine in PROGRAMS] + [("ssh", "cut")]
)
def test_a_lost_host_is_named_and_nothing_is_left(
    hosts: Hosts, script: Path, engine: str, how: str
) -> None:
    if not shutil.which(PROGRAMS[engine]):
        pytest.skip(f"{PROGRAMS[engine]} is not installed")
    by_itself = engine == "ssh"  # a program for all hosts may name another one
    with launch(hosts, engine, script, "forever") as process:
        assert process.stdout
        assert process.stderr
        assert "of 6" in process.stdout.readline()
        getattr(hosts, how)(hosts.names[1])
        lost_s = time.monotonic()
        assert process.wait(40) == 137
        took_s = time.monotonic() - lost_s
        assert f"warning: Host {hosts.names[1] if by_itself else ''}" in process.stderr.read()
    assert took_s < (15 if by_itself else 40)
    assert hosts.are_idle_within(max(1, 15 - took_s))


@on_all
def test_ranks_die_with_a_killed_launcher(hosts: Hosts, script: Path, engine: str) -> None:
    with launch(hosts, engine, script, "forever") as process:
        assert process.stdout
        assert "of 6" in process.stdout.readline()
        process.kill()
    assert hosts.are_idle_within(15)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_folder_that_is_not_shared_is_named(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, engine: str
) -> None:
    (tmp_path / "meet.py").write_text(MEET)
    hosts = namespaces.start(tmp_path_factory.mktemp("hosts"), 3, 2, hidden=tmp_path)
    try:
        with launch(hosts, engine, tmp_path / "meet.py") as process:
            _, said = process.communicate(timeout=60)
        assert process.returncode == 4
        assert f"Host {hosts.names[2]} does not see " in said
        assert "all hosts share" in said
        assert len(said.strip().splitlines()) == 1
        assert hosts.are_idle_within(15)
    finally:
        namespaces.stop(hosts)


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


def tune(hosts: Hosts, engine: str, folder: Path) -> set[str]:
    """The winner, and the configurations that are as fast within noise."""
    folder.mkdir()
    shutil.copy(EXAMPLE / "train.py", folder)
    config = json.loads((EXAMPLE / "config.json").read_text())
    config |= {"train_micro_batch_size_per_gpu": [1, 8], "gradient_accumulation_steps": 2}
    config["zero_optimization"] = {"stage": 0}  # every launch takes 15 s on two cores
    (folder / "config.json").write_text(json.dumps(config))
    words = ("--tuner_num_trials", "3", "--effort", "quick", "--soak-steps", "0")
    script = ("train.py", "--config", "config.json")
    done = subprocess.run(
        (*COMMAND, *hosts.flags_of(engine), "--autotuning=tune", *words, *script),
        env=hosts.variables,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, (engine, done.stderr)
    summary = json.loads((folder / "autotuning_results" / "summary.json").read_text())
    return {summary["winner"], *summary["ties"], *summary["undecided"]}


@pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS.values())), reason="needs pdsh and openmpi-bin"
)
def test_every_engine_finds_the_same_winner_or_names_a_tie(hosts: Hosts, tmp_path: Path) -> None:
    found = {engine: tune(hosts, engine, tmp_path / engine) for engine in PROGRAMS}
    assert set.intersection(*found.values()), found
    assert hosts.are_idle_within(5)
