"""What reaches a trial's logs and files if the launcher knows secrets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autoconf_launch.core import SecretFilter
from autoconf_launch.launcher.backends import LocalBackend
from autoconf_launch.launcher.backends.fork_server import ForkServerBackend
from autoconf_launch.launcher.backends.hosts import HostsBackend
from autoconf_launch.launcher.plan import LaunchPlan

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
def backend(request: pytest.FixtureRequest, lab: Lab) -> Iterator[LocalBackend | HostsBackend]:
    if request.param == "hosts":
        yield HostsBackend()
    elif request.param == "local":
        yield lab.backend
    else:
        forks = ForkServerBackend()
        yield forks
        forks.close()


def test_a_value_in_two_writes_reaches_no_log(
    lab: Lab, backend: LocalBackend | HostsBackend
) -> None:
    plan = plan_with_secrets(lab, IN_TWO_WRITES)
    job = backend.submit(plan)
    eventually(lambda: any(backend.poll([job])), 20.0)
    assert (lab.folder / "stdout.log").read_text() == "before ${HF_TOKEN} after\n${HF_TOKEN}"
    assert (lab.folder / "stderr.log").read_text() == "x" * 65530 + "${HF_TOKEN}\n"


def test_a_file_with_secrets_is_rewritten_once_its_launch_has_ended(
    lab: Lab, backend: LocalBackend | HostsBackend
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
