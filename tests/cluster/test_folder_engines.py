"""Launches over three hosts by engines that start all agents at once: pdsh and OpenMPI."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces
from .namespaces import Hosts
from .test_ssh_hosts import COMMAND, MEET
from .test_ssh_hosts import pytestmark as on_namespaces

ENGINES = [
    pytest.param(
        engine,
        marks=pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed"),
    )
    for engine, program in (("pdsh", "pdsh"), ("openmpi", "mpirun"))
]
pytestmark = [*on_namespaces, pytest.mark.parametrize("engine", ENGINES)]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    found = namespaces.start(tmp_path_factory.mktemp("hosts"), count=3, slots=2)
    yield found
    namespaces.stop(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script in a folder whose name a shell and pdsh would read in their own ways."""
    folder = tmp_path / "it's $HOME %n `x`"
    folder.mkdir()
    (folder / "meet.py").write_text(MEET)
    return folder / "meet.py"


def launch(hosts: Hosts, engine: str, script: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*COMMAND, *hosts.flags_of(engine), "--no_local_rank", str(script), *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=script.parent,
        env=hosts.variables,
    )


def test_ranks_of_all_hosts_meet(hosts: Hosts, script: Path, engine: str) -> None:
    with launch(hosts, engine, script) as process:
        printed, said = process.communicate(timeout=120)
    first, second, third = hosts.names
    placed = [first, first, second, second, third, third]
    expected = [f"rank {rank} on {host} of 6" for rank, host in enumerate(placed)]
    assert (process.returncode, sorted(printed.split("\n"))[1:]) == (0, expected), said
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


def test_words_of_a_script_pass_whole(hosts: Hosts, script: Path, engine: str) -> None:
    script.write_text(
        "import json, os, sys; os.write(1, f'{json.dumps(sys.argv[1:])}\\n'.encode())"
    )
    words = ["--", "-x", "$(id)", "a'b\"c", "line\nline", "%n %h", "*", ";", "é"]
    with launch(hosts, engine, script, *words) as process:
        printed, said = process.communicate(timeout=120)
    assert [json.loads(line) for line in printed.splitlines()] == [words] * 6, said


def test_the_code_of_a_rank_that_fails_is_the_launches(
    hosts: Hosts, script: Path, engine: str
) -> None:
    with launch(hosts, engine, script, "fails") as process:
        process.communicate(timeout=120)
    assert process.returncode == 7
    assert hosts.are_idle_within(5)


def test_a_killed_host_is_named_and_nothing_is_left(
    hosts: Hosts, script: Path, engine: str
) -> None:
    with launch(hosts, engine, script, "forever") as process:
        assert process.stdout
        assert process.stderr
        assert "of 6" in process.stdout.readline()
        hosts.kill(hosts.names[1])
        lost_s = time.monotonic()
        assert process.wait(40) == 137
        took_s = time.monotonic() - lost_s
        assert "warning: Host " in process.stderr.read()
    assert hosts.are_idle_within(max(1, 15 - took_s))


def test_ranks_die_with_a_killed_launcher(hosts: Hosts, script: Path, engine: str) -> None:
    with launch(hosts, engine, script, "forever") as process:
        assert process.stdout
        assert "of 6" in process.stdout.readline()
        process.kill()
    assert hosts.are_idle_within(15)


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
