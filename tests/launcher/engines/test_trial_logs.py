"""Contents of a trial's logs and files if the launcher knows secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from autoconf_launch.core import SecretFilter
from autoconf_launch.launcher.engines import (
    ForkServerEngine,
    LocalEngine,
    SshEngine,
    hosts_job,
    local,
)
from autoconf_launch.launcher.launch import agent
from autoconf_launch.launcher.plan import LaunchPlan

from .conftest import Lab, eventually, in_child, order_of

KNOWN = SecretFilter([("abcd-efgh-1", "HF_TOKEN")])
IN_TWO_WRITES = """
os.write(1, b"before abcd-"); time.sleep(0.2); os.write(1, b"efgh-1 after\\n")
os.write(2, b"x" * 65530 + b"abcd-efgh-1\\n"); os.write(1, b"abcd-efgh-"); report()
"""


def plan_with_secrets(lab: Lab, script: str) -> LaunchPlan:
    """A launch whose ranks are told secrets."""
    plan = lab.plan(script)
    rank = plan.ranks[0]
    environment = (*rank.environment, *KNOWN.to_environment())
    return replace(plan, ranks=(replace(rank, environment=environment),))


@pytest.fixture(params=["local", "fork_server", "hosts"])
def backend(request: pytest.FixtureRequest, lab: Lab) -> Iterator[LocalEngine | SshEngine]:
    if request.param == "hosts":
        yield SshEngine()
    elif request.param == "local":
        yield lab.backend
    else:
        forks = ForkServerEngine()
        yield forks
        forks.close()


def test_a_value_in_two_writes_reaches_no_log(lab: Lab, backend: LocalEngine | SshEngine) -> None:
    plan = plan_with_secrets(lab, IN_TWO_WRITES)
    job = backend.submit(plan)
    eventually(lambda: any(backend.poll([job])), 20.0)
    assert (lab.folder / "stdout.log").read_text() == "before ${HF_TOKEN} after\n${HF_TOKEN}"
    assert (lab.folder / "stderr.log").read_text() == "x" * 65530 + "${HF_TOKEN}\n"


def test_a_file_with_secrets_is_rewritten_once_its_launch_has_ended(
    lab: Lab, backend: LocalEngine | SshEngine
) -> None:
    path = lab.folder / "config.json"
    path.write_text('{"token": "abcd-efgh-1"}')
    plan = lab.plan("assert 'abcd-efgh-1' in open('config.json').read(); report()")
    job = backend.submit(replace(plan, private_files=((str(path), '{"token": ""}'),)))
    eventually(lambda: any(backend.poll([job])), 20.0)
    assert (lab.folder / "stderr.log").read_text() == ""
    assert path.read_text() == '{"token": ""}'


def test_a_killed_controller_leaves_no_secret_behind(lab: Lab) -> None:
    path = lab.folder / "config.json"
    path.write_text("abcd-efgh-1")
    script = "os.write(1, b'abcd-efgh-1\\nabcd-'); ready(); time.sleep(100)"
    plan = replace(plan_with_secrets(lab, script), private_files=((str(path), "gone"),))

    def run() -> int:
        _job = lab.backend.submit(plan)  # one that is dropped ends
        eventually((lab.folder / "ready0").exists)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    os.waitpid(in_child(run), 0)
    eventually(lambda: not lab.living(), 5.0)
    assert (lab.folder / "stdout.log").read_text() == "${HF_TOKEN}\nabcd-"
    assert path.read_text() == "gone"


def test_an_agent_without_launcher_removes_the_order_in_its_folder(lab: Lab) -> None:
    plan = plan_with_secrets(lab, "print('abcd-efgh-1', flush=True); time.sleep(100)").ranks[0]
    rank = {"argv": plan.argv, "environment": plan.environment}
    down = lab.folder / "0.down"
    order = order_of(lab.folder, rank, attempt="now", linger_s=0.1, grace_s=0.1, may_leave=False)
    down.write_text(json.dumps(order) + "\n")
    # the agent is a script, which reads its arguments when it is imported
    program = str(Path(agent.__file__).with_name("host_agent.py"))
    command = (sys.executable, program, "0.2", "3", "torch", str(lab.folder), "0")
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "LAB": lab.mark})
    assert (lab.folder / "0.out").read_text() == "${HF_TOKEN}\n"
    assert not down.exists()


@pytest.mark.parametrize(("module", "engine"), [(local, LocalEngine), (hosts_job, SshEngine)])
def test_of_a_long_log_the_beginning_and_the_end_stay(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    engine: type[LocalEngine | SshEngine],
) -> None:
    monkeypatch.setattr(module, "LOG_LIMIT_BYTES", 2 << 20)
    (lab.folder / "stdout.log").write_text("before\n")
    backend = engine()
    job = backend.submit(
        lab.plan(
            "print('first'); sys.stdout.flush(); os.write(2, b'err'); "
            "[os.write(1, bytes(range(256)) * 40) for _ in range(1000)]; print('last'); report()"
        )
    )
    eventually(lambda: any(backend.poll([job])), 20.0)
    log = (lab.folder / "stdout.log").read_bytes()
    omitted = 256 * 40_000 + 11 - (2 << 20)
    assert log.startswith(b"before\nfirst\n")
    assert log.endswith(b"last\n")
    assert f"[autoconf-launch: {omitted} bytes are omitted here".encode() in log
    assert len(log) < (2 << 20) + 200
    assert (lab.folder / "stderr.log").read_bytes() == b"err"


def test_ranks_of_a_dead_controller_end_before_a_later_launch_begins(lab: Lab) -> None:
    dead, later = SshEngine(grace_s=0.3), SshEngine(grace_s=0.3)
    orphan = dead.submit(lab.plan("ready(); time.sleep(100)"))
    eventually(lambda: any(dead.poll([orphan])) or (lab.folder / "ready0").exists())
    later.end_orphan(orphan.handle, "anywhere")
    later.end_orphan("no handle; of ours", "anywhere")
    looks = f"sys.exit({orphan.handle!r} in open('left').read())"
    marks = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a JOB= > left"
    plan = lab.plan(f"os.system({marks!r}); {looks}", task=False)
    job = later.submit(plan)
    eventually(lambda: any(later.poll([job])), 10.0)
    eventually(lambda: any(dead.poll([orphan])), 10.0)
    (end,), (orphans_end,) = later.poll([job]), dead.poll([orphan])
    assert end is not None
    assert orphans_end is not None
    assert (end.exit_code, orphans_end.exit_code) == (0, 137)
