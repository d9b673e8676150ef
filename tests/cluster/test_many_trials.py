"""Many trials at a time on hosts, by ssh and as steps of a real Slurm; their steps wait."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from . import namespaces, slurm
from .launching import wait_until
from .namespaces import Hosts
from .slurm import Slurm

ROOT = Path(__file__).parents[2]
TRIALS = 8
pytestmark = pytest.mark.cluster
needs_slurm = pytest.mark.skipif(not slurm.IS_INSTALLED, reason=slurm.REASON)
needs_ssh = pytest.mark.skipif(not namespaces.CAN_RUN, reason=namespaces.REASON)
OVER_SSH = pytest.param("over_ssh", marks=needs_ssh)
IN_SLURM = pytest.param("allocation", marks=needs_slurm)


class Rank(NamedTuple):
    """Place and time of a trial."""

    trial: str
    host: str
    gpus: str | None
    start_s: float
    end_s: float

    def disturbs(self, other: Rank) -> bool:
        """True if another trial had a GPU of this one at the same time."""
        is_beside = self.host == other.host and self.trial != other.trial
        at_once = self.start_s < other.end_s and other.start_s < self.end_s
        return is_beside and at_once and bool(_gpus(self) & _gpus(other))


def _gpus(rank: Rank) -> set[str]:
    return set((rank.gpus or "").split(","))


@dataclass(frozen=True, kw_only=True)
class Place:
    """Hosts, and the command of a study on them."""

    folder: Path
    flags: tuple[str, ...]
    variables: dict[str, str]

    def start(
        self, name: str, step_s: float, *flags: str, trials: int = TRIALS
    ) -> subprocess.Popen[str]:
        """A study in the folder of this name."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        words = (str(folder), str(trials), str(step_s), *self.flags, *flags)
        return subprocess.Popen(
            (sys.executable, "-m", "tests.cluster.waiting_trials", *words),
            env=self.variables,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, name: str, step_s: float, *flags: str, trials: int = TRIALS
    ) -> dict[str, object]:
        process = self.start(name, step_s, *flags, trials=trials)
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        found: dict[str, object] = json.loads(out)
        assert found["failed"] == []
        return found

    def ranks(self, name: str) -> list[Rank]:
        """Every rank that reached its end."""
        found = []
        for path in (self.folder / name).glob("z0_*/stdout.log"):
            for line in path.read_text().splitlines():
                if match := re.fullmatch(r"place (\[.*\])", line):
                    found.append(Rank(path.parent.name, *json.loads(match[1])))
        return found

    def living(self, name: str) -> list[str]:
        """Command lines of ranks that still live."""
        script = str(self.folder / name / "rank.py").encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            words = b""
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if script in words.split(b"\0") and b"waiting_trials" not in words:
                found.append(words.decode(errors="replace"))
        return found


def names_in_journal(folder: Path) -> list[str]:
    """Sorted names of the trials that were measured, each as often as it was."""
    lines = map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
    return sorted(line["name"] for line in lines if "name" in line)


@pytest.fixture(scope="module")
def allocation(slurm_cluster: Slurm) -> Place:
    """Four nodes of four GPUs that are clones of /dev/null; nvidia-smi names them."""
    driver = slurm_cluster.folder / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\nfor n in 0 1 2 3; do echo $n, GPU-$n, Fake, 8000; done\n")
    driver.chmod(0o755)
    slurm_cluster.run("salloc", "-Q", "--no-shell", "-N4", "-n16", "--gres=gpu:4")
    (number,) = (line.split()[0] for line in slurm_cluster.jobs())
    told = {
        "SLURM_JOB_ID": number,
        "SLURM_JOB_NODELIST": "n[1-4]",
        "SLURM_JOB_CPUS_PER_NODE": "4(x4)",
        "PATH": f"{driver.parent}:{os.environ['PATH']}",
    }
    flags = ("--launcher", "slurm")
    return Place(
        folder=slurm_cluster.folder, flags=flags, variables=slurm_cluster.variables | told
    )


@pytest.fixture
def over_ssh(hosts: Hosts) -> Place:
    flags = (*hosts.flags, "--num_nodes", "1", "--num_gpus", "2")
    return Place(folder=hosts.folder, flags=flags, variables=dict(os.environ))


@needs_slurm
def test_four_at_a_time_are_three_times_as_fast_as_one(allocation: Place) -> None:
    """At most 0.5 s of a trial are ours and srun's start of an empty step."""
    srun_s = []
    for _ in range(3):
        began_s = time.monotonic()
        empty = ("srun", "--overlap", "-N1", "-n1", "true")
        subprocess.run(empty, env=allocation.variables, check=True)
        srun_s.append(time.monotonic() - began_s)
    one = allocation.run("one", 2.0, "--num_nodes", "1", "--max-parallel-trials", "1")
    four = allocation.run("four", 2.0, "--num_nodes", "1")
    assert (one["room"], four["room"]) == (1, 4)
    took_s = {name: float(str(found["took_s"])) for name, found in (("1", one), ("4", four))}
    assert took_s["1"] > 3.0 * took_s["4"]
    assert took_s["1"] / TRIALS - 2.0 < 0.5 + statistics.median(srun_s)


@needs_slurm
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (2, 2)])
def test_steps_have_gpus_of_their_own(allocation: Place, nodes: int, gpus: int) -> None:
    name = f"{nodes}x{gpus}"
    allocation.run(name, 1.0, "--num_nodes", str(nodes), "--num_gpus", str(gpus))
    ranks = allocation.ranks(name)
    assert {len(_gpus(rank)) for rank in ranks} == {gpus}
    assert not any(one.disturbs(other) for one in ranks for other in ranks)
    assert len(ranks) == TRIALS * nodes * gpus


@needs_slurm
def test_as_many_jobs_are_queued_at_once_as_are_asked_for() -> None:
    with slurm.running() as cluster:
        flags = ("--launcher", "sbatch", "--num_nodes", "1", "--num_gpus", "1")
        place = Place(folder=cluster.folder, flags=flags, variables=cluster.variables)
        found = place.run("queued", 2.0, "--max-parallel-trials", "4")
        assert (found["room"], len(place.ranks("queued"))) == (4, TRIALS)
        assert float(str(found["took_s"])) < 2.0 * TRIALS


@needs_ssh
def test_trials_run_on_disjoint_hosts_by_ssh(over_ssh: Place) -> None:
    found = over_ssh.run("apart", 1.0)
    ranks = over_ssh.ranks("apart")
    assert (found["room"], len({rank.host for rank in ranks}), len(ranks)) == (3, 3, 2 * TRIALS)
    assert not any(one.disturbs(other) for one in ranks for other in ranks)
    assert float(str(found["took_s"])) < TRIALS


@needs_ssh
@pytest.mark.parametrize("how", ["kill", "cut"])
def test_trials_of_a_lost_host_run_elsewhere_and_it_is_named(how: str) -> None:
    with namespaces.running(slots=1) as hosts:
        flags = (*hosts.flags, "--num_nodes", "1")
        place = Place(folder=hosts.folder, flags=flags, variables=dict(os.environ))
        process = place.start("lost", 2.0)
        lost = hosts.names[1]
        assert wait_until(lambda: any(map(_is_rank, hosts.processes(lost))), 60)
        getattr(hosts, how)(lost)
        out, error = process.communicate(timeout=120)
        assert (process.returncode, json.loads(out)["failed"]) == (0, [])
        said = f"Host {lost} failed twice and gets no more trials."
        assert (said if how == "kill" else f"host {lost} has not answered for 10 s") in error
        assert {rank.trial for rank in place.ranks("lost")} == {
            f"z0_gas1_tmbspg{n}" for n in range(TRIALS)
        }
        assert hosts.are_idle_within(15)


def _is_rank(pid: int) -> bool:
    with suppress(OSError):
        return b"rank.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.parametrize("where", [OVER_SSH, IN_SLURM])
def test_a_killed_controller_is_resumed_without_a_second_measurement(
    where: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    flags = ("--num_nodes", "1") if where == "allocation" else ()
    draw, kills = random.Random(os.getpid()), int(os.environ.get("KILLS", "5"))
    trials = 6 * kills
    for _ in range(kills):
        process = place.start("killed", 0.7, *flags, trials=trials)
        wait_until(lambda: place.living("killed"), 30)
        time.sleep(draw.uniform(0.0, 1.5))
        assert process.poll() is None, "it has ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert wait_until(lambda: not place.living("killed"), 15)
    place.run("killed", 0.7, *flags, trials=trials)
    names = sorted(f"z0_gas1_tmbspg{number}" for number in range(trials))
    assert names_in_journal(place.folder / "killed") == names
    assert place.living("killed") == []
