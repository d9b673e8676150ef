from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import Failure, FailureKind, HardwareError
from autoconf_launch.launcher.engines import FolderLine, HostsJob, make_engine
from autoconf_launch.launcher.engines.folder_line import Starter, StartingProcess, engine_reason
from autoconf_launch.launcher.engines.hosts_job import JobAgent
from autoconf_launch.launcher.engines.line import agent_command
from autoconf_launch.launcher.request import RemoteAccess

from .conftest import Lab, order_of

OVER = Failure(kind=FailureKind.NODE_LOST, detail="is over")


class Engine(Starter):
    """A starter of an agent: it lives until ``over`` is set."""

    over: Failure | None = None

    def is_queued(self, node: int) -> bool:
        return False

    def why_queued(self, node: int) -> str:
        return ""

    def why_over(self, node: int) -> Failure | None:
        return self.over

    def patience_s(self, node: int) -> float:
        return 30.0

    def end(self) -> None: ...


def line_of(folder: Path, engine: Engine | None = None) -> FolderLine:
    return FolderLine("far", folder, 0, engine or Engine(folder))


def write(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def test_lines_come_whole_and_once(tmp_path: Path) -> None:
    line = line_of(tmp_path)
    assert line.read() == []
    (tmp_path / "0.up").write_text('{"here": {}}\n{"failed"')
    assert line.read() == [{"here": {}}]
    write(tmp_path / "0.up")
    with (tmp_path / "0.up").open("a") as file:
        file.write(': 3}\n{"alive": true}\n')
    assert line.read() == [{"failed": 3}]
    assert line.read() == []


def test_a_report_waits_for_all_that_was_printed_before(tmp_path: Path) -> None:
    line = line_of(tmp_path)
    (tmp_path / "0.out").write_text("one")
    write(tmp_path / "0.up", {"report": {}, "printed_bytes": [7, 0]})
    assert line.read() == [{"stream": 1, "data": base64.b64encode(b"one").decode()}]
    (tmp_path / "0.out").write_text("one two")
    assert [next(iter(each)) for each in line.read()] == ["stream", "report"]


def test_a_silent_host_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_of(tmp_path)
    write(tmp_path / "0.up", {"here": {}})
    line.read()
    assert line.loss is None
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 10.1)
    assert line.loss
    assert line.loss.detail == "has not answered for 10 s"


def test_an_engines_end_is_believed_once_late_files_would_be_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path)
    line = line_of(tmp_path, engine)
    engine.over = OVER
    assert line.loss is None
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 3)
    assert line.loss == OVER


RULE = "-" * 74
ROOT = "mpirun has detected an attempt to run as root"
TIMED_OUT = "Connection to 10.0.0.9 port 22 timed out"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{RULE}\n{ROOT}.\n\nWe reiterate our advice.\n{RULE}\n", ROOT),
        (f"{TIMED_OUT}\n{RULE}\nORTE was unable to start.\n\n* advice\n{RULE}\n", TIMED_OUT),
        ("one\ntwo\n", "two"),
        ("", ""),
    ],
)
def test_what_open_mpi_advises_at_length_is_not_quoted(text: str, why: str) -> None:
    assert engine_reason(text) == why


def test_what_an_engine_printed_last_is_why_it_ended(tmp_path: Path) -> None:
    engine = StartingProcess(("sh", "-c", "echo one; echo no such host >&2"), tmp_path, {})
    until_s = time.monotonic() + 10
    while (over := engine.why_over(0)) is None and time.monotonic() < until_s:
        time.sleep(0.02)
    assert over is not None
    assert over.detail == "is not connected: sh has ended (no such host)"
    engine.close()
    assert not tmp_path.exists()


@pytest.fixture
def engine_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], RemoteAccess]:
    """An engine that starts agents here, in what a shell's line makes of the command."""

    def make(line: str) -> RemoteAccess:
        (tmp_path / "mpirun").write_text(f"#!/bin/sh\nshift 6\n{line}\n")
        (tmp_path / "mpirun").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.chdir(tmp_path)
        return RemoteAccess(engine="mpich")

    return make


def test_hosts_describe_themselves_through_a_folder(
    engine_here: Callable[[str], RemoteAccess], tmp_path: Path
) -> None:
    access = engine_here('PMI_RANK=0 "$@" & PMI_RANK=1 "$@"; wait')
    first, second = make_engine(access).describe_hosts(("one", "two"))
    assert (first.host, second.host, first.cores > 0) == ("one", "two", True)
    assert [path.name for path in tmp_path.iterdir()] == ["mpirun"]


def test_a_folder_that_a_host_does_not_see_is_named_before_anything_starts(
    engine_here: Callable[[str], RemoteAccess],
) -> None:
    access = engine_here('exec "$1" "$2" "$3" "$4" "$5" "$6" /not/here 0')
    with pytest.raises(HardwareError, match=r"^Host \S+ does not see .*; work in a folder that"):
        make_engine(access).describe_hosts(("gone",))


def test_an_agent_without_a_number_says_so(tmp_path: Path) -> None:
    command = (*agent_command(), str(tmp_path), "NO_SUCH_VARIABLE")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("autoconf-launch: ")
    assert "NO_SUCH_VARIABLE" in answer.stderr


def test_agents_meet_at_the_first_ones_address_without_a_launcher(tmp_path: Path) -> None:
    code = "import os; print(os.environ['RANK'], os.environ['MASTER_PORT'])"
    for node in (0, 1):
        variables = {"RANK": str(node), "MASTER_ADDR": "", "MASTER_PORT": ""}
        rank = {"rank": node, "argv": [sys.executable, "-c", code], "environment": variables}
        write(tmp_path / f"{node}.down", order_of(tmp_path, rank))
    command = (*agent_command(float("inf")), str(tmp_path), "K")
    second, first = (subprocess.Popen(("env", f"K={node}", *command)) for node in (1, 0))
    assert (first.wait(20), second.wait(20)) == (0, 0)
    port = json.loads((tmp_path / "0.up").read_text().splitlines()[0])["here"]["port"]
    assert [(tmp_path / f"{n}.out").read_text() for n in (0, 1)] == [
        f"{n} {port}\n" for n in (0, 1)
    ]
    report = json.loads((tmp_path / "1.up").read_text().splitlines()[-1])
    assert (report["report"]["codes"], report["printed_bytes"][0]) == ([0], len(f"1 {port}\n"))


def test_an_agent_ends_its_ranks_once_the_launchers_heart_stops(tmp_path: Path) -> None:
    write(tmp_path / "0.down", order_of(tmp_path, {"argv": ["sleep", "100"]}))
    (tmp_path / "beat").write_text("1\n")
    began_s = time.monotonic()
    done = subprocess.run((*agent_command(1.0), str(tmp_path), "0"), timeout=30, check=False)
    assert done.returncode == 0
    assert time.monotonic() - began_s < 10
    report = json.loads((tmp_path / "0.up").read_text().splitlines()[-1])
    assert report["report"]["codes"] == [-15]


HERE: dict[str, object] = {
    "address": "", "launcher_address": None, "port": 1, "unix_s": 0.0, "cores": 1,
    "memory_bytes": 1, "gpus": [], "versions": {},
}  # fmt: skip
REPORT: dict[str, object] = {"codes": [0], "exit_unix_s": [1.0], "terminated_unix_s": None}


@pytest.mark.parametrize(
    "said",
    [
        {"here": 7},
        {"here": {**HERE, "unix_s": "\x1b[2J"}},
        {"here": HERE | {"port": "22; rm x"}},
        {"stream": 1},
        {"stream": [], "data": ""},
        {"file": "result.json", "data": "é"},
        {"report": {}},
        {"report": REPORT | {"codes": [0, 0]}},
        {"report": REPORT | {"codes": ["0"]}},
        {"report": REPORT, "printed_bytes": ["x"], "and": "sound"},
    ],
)
def test_what_no_agent_says(lab: Lab, said: dict[str, object]) -> None:
    line = FolderLine("far", lab.folder, 0, Engine(lab.folder))
    plan = lab.plan("", ranks=1)
    job = HostsJob(plan, (JobAgent(0, line, plan.ranks),), {})
    noise = f"[1]\n{'[' * 100_000}\n\nnull\n7\n"
    (lab.folder / "0.up").write_text(noise + json.dumps(said) + "\n")
    end = job.look()
    assert end is not None
    if "and" in said:
        assert end.exit_code == 0
        return
    assert end.exit_code == 137
    assert end.lost_hosts == ("far",)
    assert isinstance(end.outcome, FailedTrial)
    failure = end.outcome.failure
    assert failure.kind is FailureKind.NODE_LOST
    assert failure.detail.startswith("host far says what no agent says (")
    assert "\x1b" not in failure.detail
