import os
import subprocess
import sys
import time
import uuid

from autoconf_launch.core import JOB_VARIABLE
from autoconf_launch.launcher.engines import LocalJob
from autoconf_launch.launcher.engines.local import await_agent, kill_strays

from .conftest import Lab

NO_SESSION = -1


def marked_sleeper(token: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        (sys.executable, "-c", "print(flush=True); import time; time.sleep(100)"),
        env={**os.environ, JOB_VARIABLE: token},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        output.readline()
    return child


def test_a_process_with_the_token_is_killed() -> None:
    token = uuid.uuid4().hex
    child = marked_sleeper(token)
    assert kill_strays(token, NO_SESSION)
    assert child.wait(5) == -9


def test_a_process_of_the_session_is_killed() -> None:
    child = marked_sleeper("")
    assert kill_strays(uuid.uuid4().hex, child.pid)
    assert child.wait(5) == -9


def test_a_token_that_only_begins_alike_is_spared() -> None:
    token = uuid.uuid4().hex
    child = marked_sleeper(token)
    found = kill_strays(token[:-1], NO_SESSION)
    child.kill()
    child.wait()
    assert not found


def test_an_orphaned_agent_is_waited_for(lab: Lab) -> None:
    job = lab.start_and_await("ready(); time.sleep(0.3)")
    assert isinstance(job, LocalJob)
    start_s = time.monotonic()
    assert await_agent(job.pid, 10)
    assert 0.1 < time.monotonic() - start_s < 5
    lab.end_of(job)


def test_a_wait_for_an_agent_has_an_end(lab: Lab) -> None:
    job = lab.start_and_await("ready(); time.sleep(0.5)")
    assert isinstance(job, LocalJob)
    assert not await_agent(job.pid, 0.05)
    lab.end_of(job)


def test_a_number_that_another_program_has_taken_is_not_waited_for() -> None:
    assert await_agent(os.getpid(), 10)


def test_a_number_that_nobody_has_is_not_waited_for() -> None:
    child = subprocess.Popen(("true",))
    child.wait()
    assert await_agent(child.pid, 10)
