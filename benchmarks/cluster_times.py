"""The cost of many trials and of a lost host on the engines of the cluster tests.

    python benchmarks/cluster_times.py [--write]

As root, with Slurm and sshd installed (``tests/cluster/install_engines.sh``). In an allocation of
four nodes, trials of a node each run one and four at a time; their steps wait for 2 s, so that the
rest is ours and ``srun``'s, whose empty step is also timed. Then a tune over three
namespace hosts, all of which every trial needs, loses one: seconds until it has ended, and until
no process of it is left on any host. ``--write`` puts both into
``benchmarks/results/cluster_times.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from search_landscapes import markdown

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.cluster import namespaces, slurm
from tests.cluster.test_many_trials import TRIALS, Place, allocate, commands_of

RESULT = Path(__file__).parent / "results" / "cluster_times.md"
STEP_S = 2.0
REPEATS = 3


@contextmanager
def slurm_place() -> Iterator[Place]:
    """An allocation of four nodes, of four GPUs that are clones of ``/dev/null``."""
    with tempfile.TemporaryDirectory(
        prefix="cluster-times-", ignore_cleanup_errors=True
    ) as folder:
        cluster = slurm.start(Path(folder))
        try:
            yield allocate(cluster)
        finally:
            slurm.stop(cluster)


def empty_step_s(place: Place) -> float:
    """Median seconds of a step that does nothing."""
    taken_s = []
    for _ in range(REPEATS):
        began_s = time.monotonic()
        empty = ("srun", "--overlap", "-N1", "-n1", "true")
        subprocess.run(empty, env=place.variables, check=True)
        taken_s.append(time.monotonic() - began_s)
    return statistics.median(taken_s)


def trials_table() -> str:
    """A row for each repeat of a study of trials that wait, one and four at a time."""
    rows = []
    with slurm_place() as place:
        for repeat in range(REPEATS):
            step_s = empty_step_s(place)
            took_s = [
                float(str(place.run(f"{most}-{repeat}", STEP_S, *_flags(most))["took_s"]))
                for most in (1, 4)
            ]
            cost_s = took_s[0] / TRIALS - STEP_S
            rows.append(
                [
                    f"{took_s[0]:.1f} s",
                    f"{took_s[1]:.1f} s",
                    f"{took_s[0] / took_s[1]:.2f}",
                    f"{cost_s:.2f} s",
                    f"{step_s:.2f} s",
                    f"{cost_s - step_s:.2f} s",
                ]
            )
    header = ("one at a time", "four", "ratio", "beyond waiting, each", "srun's", "ours")
    return markdown(rows, header)


def _flags(most: int) -> tuple[str, ...]:
    return ("--num_nodes", "1", "--max-parallel-trials", str(most))


def lose_host(how: str) -> tuple[float, float]:
    """Seconds from the loss of a host to the tune's end, and to its last process's end."""
    with tempfile.TemporaryDirectory(
        prefix="cluster-times-", ignore_cleanup_errors=True
    ) as folder:
        hosts = namespaces.start(Path(folder), count=3, slots=2)
        try:
            flags = (*hosts.flags, "--num_nodes", "3", "--num_gpus", "2")
            place = Place(folder=Path(folder), flags=flags, variables=dict(os.environ))
            process = place.start("lost", 30.0)
            lost = hosts.names[1]
            while not any("rank.py" in command for command in commands_of(hosts, lost)):
                time.sleep(0.05)
            getattr(hosts, how)(lost)
            lost_s = time.monotonic()
            _, said = process.communicate(timeout=120)
            ended_s = time.monotonic() - lost_s
            assert lost in said, said
            assert hosts.are_idle_within(60)
            return ended_s, time.monotonic() - lost_s
        finally:
            namespaces.stop(hosts)


def losses_table() -> str:
    """A row for each way to lose a host: the slowest of some repeats."""
    rows = []
    for how, words in (("kill", "all its processes killed"), ("cut", "its link cut")):
        found = [lose_host(how) for _ in range(REPEATS)]
        rows.append([words, *(f"{max(column):.1f} s" for column in zip(*found, strict=True))])
    return markdown(rows, ("host", "tune ended and named it", "no process left"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the tables into results")
    flags = parser.parse_args(arguments)
    text = (
        "# Trials and lost hosts on real engines\n\n"
        "Made by `python benchmarks/cluster_times.py --write`; that file says what is measured. "
        f"To\nreach: {TRIALS} trials of {STEP_S:g} s three times as fast four at a time, under "
        "0.5 s of ours for each; a\nlost host ends the tune and leaves no process after 15 s "
        f"(the slowest of {REPEATS}).\n\n{trials_table()}\n\n{losses_table()}\n"
    )
    sys.stdout.write(text)
    if flags.write:
        RESULT.write_text(text)


if __name__ == "__main__":
    main()
