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

import pytest

from autoconf_launch.core import SecretFilter
from autoconf_launch.launcher.engines import ForkServerEngine, LocalEngine, SshEngine
from autoconf_launch.launcher.launch import agent
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

from .conftest import Lab, eventually

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
    controller = os.fork()
    if controller == 0:
        try:
            _job = lab.backend.submit(plan)  # one that is dropped ends
            eventually((lab.folder / "ready0").exists)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(controller, 0)
    eventually(lambda: not lab.living(), 5.0)
    assert (lab.folder / "stdout.log").read_text() == "${HF_TOKEN}\nabcd-"
    assert path.read_text() == "gone"


def test_an_agent_without_launcher_removes_the_order_in_its_folder(lab: Lab) -> None:
    rank = plan_with_secrets(lab, "print('abcd-efgh-1', flush=True); time.sleep(100)").ranks[0]
    order = {
        "working_directory": str(lab.folder),
        "environment": {},
        "address": "",
        "orphans": [],
        "linger_s": 0.1,
        "grace_s": 0.1,
        "attempt": "now",
        "extension_caches": [],
        "folder": None,
        "marker": None,
        "may_leave": False,
        "files": {},
        "ranks": [{"rank": 0, "result": None, **vars_of(rank)}],
    }
    down = lab.folder / "0.down"
    down.write_text(json.dumps(order) + "\n")
    command = (sys.executable, host_agent_path(), "0.2", "3", "torch", str(lab.folder), "0")
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "LAB": lab.mark})
    assert (lab.folder / "0.out").read_text() == "${HF_TOKEN}\n"
    assert not down.exists()


def vars_of(rank: RankPlan) -> dict[str, object]:
    """A rank as an order has it."""
    return {"argv": rank.argv, "environment": rank.environment}


def host_agent_path() -> str:
    """The agent is a script, which reads its arguments when it is imported."""
    return str(Path(agent.__file__).with_name("host_agent.py"))
