"""Launches and tunes on the nodes of a real Ray cluster."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from . import launching, ray_cluster
from .launching import COMMAND
from .ray_cluster import Ray
from .test_many_trials import Place

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not ray_cluster.IS_INSTALLED, reason=ray_cluster.REASON),
]
FLAGS = ("--launcher", "ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ray]:
    found = ray_cluster.start(3, cpus=2, gpus=0)
    yield found
    ray_cluster.stop(found)


@pytest.fixture(scope="module")
def with_gpus() -> Iterator[Ray]:
    found = ray_cluster.start(3, cpus=4, gpus=4)
    yield found
    ray_cluster.stop(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return launching.make_script(tmp_path, "os.environ['AUTOCONF_LAUNCH_NODE']")


def launch(cluster: Ray, script: Path, *words: str, ranks: int = 2) -> subprocess.Popen[str]:
    flags = (*FLAGS, "--num_gpus", str(ranks))
    return launching.launch(flags, script, *words, variables=cluster.variables)


def test_without_an_address_the_cluster_of_this_machine_is_used(
    cluster: Ray, script: Path
) -> None:
    with launch(replace(cluster, address=""), script) as process:
        printed, said = process.communicate(timeout=120)
    assert (process.returncode, len(printed.splitlines())) == (0, 6), said


def test_nothing_outlives_a_killed_launcher(cluster: Ray, script: Path) -> None:
    with launch(cluster, script, "forever") as process:
        assert process.stdout
        assert "of 6" in process.stdout.readline()
        process.kill()
        process.wait(30)
    assert cluster.is_idle_within(15)


def test_a_launch_that_waits_for_busy_nodes_can_be_ended(cluster: Ray, script: Path) -> None:
    with launch(cluster, script, "forever") as first:
        assert first.stdout
        assert "of 6" in first.stdout.readline()
        with launch(cluster, script) as second:
            time.sleep(8)
            assert second.poll() is None
            second.send_signal(signal.SIGINT)
            second.communicate(timeout=30)
        assert second.returncode == 130
        assert first.poll() is None
        first.terminate()
        first.communicate(timeout=30)
    assert cluster.is_idle_within(15)


@pytest.mark.parametrize(
    ("flags", "variables", "code", "reason"),
    [
        (("--num_nodes", "9"), {}, 2, "--num_nodes is 9, but"),
        (("--include", "w7"), {}, 2, "--include names host 'w7'"),
        (("--launcher_args", "--x"), {}, 2, "RAY_ADDRESS says which"),
        ((), {"RAY_ADDRESS": "127.0.0.1:9"}, 4, "No Ray cluster answers at 127.0.0.1:9"),
        ((), {"RAY_ADDRESS": "local"}, 4, "would start a new cluster"),
    ],
)
def test_what_cannot_be_is_one_line(
    cluster: Ray,
    script: Path,
    flags: tuple[str, ...],
    variables: dict[str, str],
    code: int,
    reason: str,
) -> None:
    done = subprocess.run(
        (*COMMAND, *FLAGS, *flags, str(script)),
        env=cluster.variables | {"RAY_TMPDIR": str(script.parent)} | variables,
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=90,
        check=False,
    )
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (code, 1), done.stderr
    assert reason in done.stderr


def test_more_gpus_than_a_node_has_are_refused(with_gpus: Ray, script: Path) -> None:
    with launch(with_gpus, script, ranks=5) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--num_gpus is 5, but host w0 has 4 slots" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(("nodes", "gpus", "room"), [(1, 2, 6), (2, 4, 1)])
def test_trials_have_the_gpus_that_ray_gives_them(
    with_gpus: Ray, tmp_path: Path, nodes: int, gpus: int, room: int
) -> None:
    flags = (*FLAGS, "--num_nodes", str(nodes), "--num_gpus", str(gpus))
    place = Place(folder=tmp_path, flags=flags, variables=with_gpus.variables)
    found = place.run("gpus", 1.0, trials=6 // nodes)
    assert found["room"] == room
    ranks = place.ranks("gpus")
    assert {len((rank.gpus or "").split(",")) for rank in ranks} == {gpus}
    assert len(ranks) == 6 // nodes * nodes * gpus
    if room > 1:
        assert len({rank.gpus for rank in ranks}) == 2
    assert with_gpus.is_idle_within(10)


def test_trials_of_a_killed_node_run_elsewhere_and_it_is_named(
    cluster: Ray, tmp_path: Path
) -> None:
    flags = (*FLAGS, "--num_nodes", "1")
    place = Place(folder=tmp_path, flags=flags, variables=cluster.variables)
    process = place.start("lost", 8.0, trials=4)
    try:
        until_s = time.monotonic() + 60
        while len(place.living("lost")) < 3 and time.monotonic() < until_s:
            time.sleep(0.1)
        cluster.kill("w1")
        out, error = process.communicate(timeout=180)
    finally:
        cluster.restart("w1")
    assert (process.returncode, json.loads(out)["failed"]) == (0, []), error
    assert "host w1 was lost (NodeDiedError" in error
    assert {rank.trial for rank in place.ranks("lost")} == {f"z0_gas1_tmbspg{n}" for n in range(4)}
    journal = (tmp_path / "lost" / "journal.jsonl").read_text().splitlines()
    names = [line["name"] for line in map(json.loads, journal) if "name" in line]
    assert sorted(names) == [f"z0_gas1_tmbspg{n}" for n in range(4)]
    assert cluster.is_idle_within(15)
