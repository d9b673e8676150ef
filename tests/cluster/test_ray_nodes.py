"""Launches and trials on nodes of a real Ray; with every engine: test_schedulers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from . import launching, ray_cluster
from .ray_cluster import Ray
from .test_many_trials import Place, names_in_journal

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not ray_cluster.IS_INSTALLED, reason=ray_cluster.REASON),
]
FLAGS = ("--launcher", "ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ray]:
    """Three nodes of four GPUs."""
    with ray_cluster.running(cpus=4, gpus=4) as running:
        yield running


def test_without_an_address_the_cluster_of_this_machine_is_used(
    cluster: Ray, tmp_path: Path
) -> None:
    script = launching.make_script(tmp_path, "os.environ['AUTOCONF_LAUNCH_NODE']")
    flags = (*FLAGS, "--num_gpus", "2")
    variables = replace(cluster, address="").variables
    with launching.launch(flags, script, variables=variables) as process:
        printed, said = process.communicate(timeout=120)
    assert (process.returncode, len(printed.splitlines())) == (0, 6), said


def test_more_gpus_than_a_node_has_are_refused(cluster: Ray, tmp_path: Path) -> None:
    script = launching.make_script(tmp_path)
    code, line = launching.run_line((*FLAGS, "--num_gpus", "5"), script, cluster.variables)
    assert (code, "--num_gpus is 5, but host w0 has 4 slots" in line) == (2, True), line


@pytest.mark.parametrize(("nodes", "gpus", "room"), [(1, 2, 6), (2, 4, 1)])
def test_trials_have_the_gpus_that_ray_gives_them(
    cluster: Ray, tmp_path: Path, nodes: int, gpus: int, room: int
) -> None:
    flags = (*FLAGS, "--num_nodes", str(nodes), "--num_gpus", str(gpus))
    place = Place(folder=tmp_path, flags=flags, variables=cluster.variables)
    found = place.run("gpus", 1.0, trials=6 // nodes)
    assert found["room"] == room
    ranks = place.ranks("gpus")
    assert {len((rank.gpus or "").split(",")) for rank in ranks} == {gpus}
    assert len(ranks) == 6 // nodes * nodes * gpus
    assert room == 1 or len({rank.gpus for rank in ranks}) == 2
    assert cluster.is_idle_within(10)


def test_trials_of_a_killed_node_run_elsewhere_and_it_is_named(
    cluster: Ray, tmp_path: Path
) -> None:
    flags = (*FLAGS, "--num_nodes", "1", "--num_gpus", "4")
    place = Place(folder=tmp_path, flags=flags, variables=cluster.variables)
    process = place.start("lost", 8.0, trials=4)
    launching.wait_until(lambda: len(place.living("lost")) >= 12, 60)
    with cluster.without_node("w1"):
        out, error = process.communicate(timeout=180)
    assert (process.returncode, json.loads(out)["failed"]) == (0, []), error
    assert "host w1 was lost (NodeDiedError" in error
    names = [f"z0_gas1_tmbspg{n}" for n in range(4)]
    assert sorted({rank.trial for rank in place.ranks("lost")}) == names
    assert names_in_journal(place.folder / "lost") == names
    assert cluster.is_idle_within(15)
