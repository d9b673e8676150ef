"""The agent by itself, over its socket; with the backend: engines/test_local.py."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoconf_launch.launcher.engines import LocalEngine, LocalJob
from autoconf_launch.launcher.launch import agent
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan


@contextmanager
def started_agent() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", agent.__file__, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.settimeout(10)
        yield process, ours
    process.wait(10)


def document_of(*scripts: str) -> bytes:
    ranks = tuple(
        RankPlan(rank=rank, local_rank=rank, argv=("sh", "-c", script), environment=())
        for rank, script in enumerate(scripts)
    )
    plan = LaunchPlan(name="training", ranks=ranks, working_directory="/")
    nowhere = {"TORCH_EXTENSIONS_DIR": os.devnull}
    document = LocalEngine(environment=nowhere, grace_s=1.0).document(LocalJob(plan))
    return json.dumps(document).encode() + b"\n"


def report_on(*scripts: str) -> dict[str, Any]:
    with started_agent() as (_, control):
        control.sendall(document_of(*scripts))
        with control.makefile("rb") as lines:
            report: dict[str, Any] = json.loads(lines.readline())
    return report


def test_the_first_failure_terminates_the_others_and_ends_are_in_the_order_of_the_ranks() -> None:
    report = report_on("sleep 100", "trap '' TERM; sleep 0.1; exit 7")
    first, second = report["exit_unix_s"]
    assert report["codes"] == [-15, 7]
    assert second <= report["terminated_unix_s"] <= first


def test_nobody_is_terminated_where_all_succeed() -> None:
    report = report_on("exit 0", "sleep 0.1")
    assert (report["codes"], report["terminated_unix_s"]) == ([0, 0], None)


def test_a_controller_that_dies_before_it_says_anything_leaves_no_agent() -> None:
    with started_agent() as (process, control):
        control.close()
        assert process.wait(10) == 0


def test_shared_memory_goes_with_the_ranks_when_the_controller_dies(tmp_path: Path) -> None:
    made = tmp_path / "buffer"
    document = json.loads(document_of(f"touch {made}; sleep 100"))
    document["ranks"][0]["shared_memory"] = str(made)
    with started_agent() as (process, control):
        control.sendall(json.dumps(document).encode() + b"\n")
        until_s = time.monotonic() + 5
        while not made.exists() and time.monotonic() < until_s:
            time.sleep(0.01)
        assert made.exists()
        control.close()
        process.wait(10)
    assert not made.exists()


def test_a_document_that_comes_in_pieces_is_waited_for() -> None:
    with started_agent() as (_, control):
        document = document_of("exit 3")
        control.sendall(document[:20])
        time.sleep(0.1)
        control.sendall(document[20:] + b'{"signal": 0}\n{"sig')
        with control.makefile("rb") as lines:
            assert json.loads(lines.readline())["codes"] == [3]


def test_only_what_is_quick_to_import_is_imported() -> None:
    script = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    argv = (sys.executable, "-I", "-S", "-c", script, agent.__file__)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    slow = {"socket", "subprocess", "pathlib", "threading", "dataclasses", "inspect", "typing"}
    assert slow & set(done.stdout.split()) <= {"typing"}


def test_living_descendants_are_found_over_generations_whatever_their_name(
    tmp_path: Path,
) -> None:
    odd = tmp_path / "a) Z 1 ("  # looks like the state of a zombie
    odd.symlink_to("/bin/sleep")
    zombie = subprocess.Popen(("true",))
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    script = f"'{odd}' 100 & echo $!; wait"
    with subprocess.Popen(
        ("sh", "-c", script), stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        time.sleep(0.05)
        found = agent.descendants(os.getpid())
        os.killpg(child.pid, 9)
    zombie.wait()
    assert {child.pid, grandchild} <= {*found} - {zombie.pid}
    assert zombie.pid not in found
