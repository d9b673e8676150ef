"""The fork server's backend against the real process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import (
    ForkServerEngine,
    LocalJob,
    agents,
    early_fork_server,
    fork_server,
)
from autoconf_launch.launcher.engines.local import await_agent
from autoconf_launch.launcher.launch import probe_environment
from autoconf_launch.launcher.plan import LaunchPlan

from .conftest import DEAF, LEAVE_BEHIND, PREAMBLE, Lab, eventually, living_with

TIMED_OUT = Failure(kind=FailureKind.TIMED_OUT, detail="took too long")
FORKED = "print('torch' in sys.modules); report()"
HANG = "ready(); time.sleep(100)"


@dataclass(frozen=True, kw_only=True)
class Nursery(Lab):
    """A lab whose ranks can be forked."""

    backend: ForkServerEngine

    def plan(self, script: str, *, ranks: int = 1, task: bool = True) -> LaunchPlan:
        (self.folder / "rank.py").write_text(PREAMBLE + script)
        plan = super().plan(script, ranks=ranks, task=task)
        argv = (sys.executable, "-u", "rank.py")
        return replace(plan, ranks=tuple(replace(rank, argv=argv) for rank in plan.ranks))

    def forks(self, **environment: str) -> bool:
        """Run a launch with these variables, see it measured, and say how it was started."""
        plan = self.plan(FORKED)
        variables = (*plan.ranks[0].environment, *environment.items())
        plan = replace(plan, ranks=(replace(plan.ranks[0], environment=variables),))
        return self.was_forked(plan)

    def was_forked(self, plan: LaunchPlan) -> bool:
        (self.folder / "stdout.log").unlink(missing_ok=True)
        end = self.end_of(self.backend.submit(plan), timeout_s=60)
        assert plan.task is None or isinstance(end.outcome, Measurement), end
        return (self.folder / "stdout.log").read_text().startswith("True")

    def fork_server_pid(self) -> int:
        (made,) = self.backend._fork_servers.values()
        return made.pid

    def kill_fork_server(self) -> None:
        (made,) = self.backend._fork_servers.values()
        os.kill(made.pid, signal.SIGKILL)
        eventually(lambda: made.death is not None)

    def left(self) -> list[int]:
        """Living processes of the launches, without fork servers."""
        fork_servers = [made.pid for made in self.backend._fork_servers.values()]
        return [pid for pid in self.living() if pid not in fork_servers]


def variables(mark: str) -> dict[str, str]:
    return {**os.environ, "LAB": mark, "OMP_NUM_THREADS": "1"}


def fresh(mark: str) -> ForkServerEngine:
    return ForkServerEngine(environment=variables(mark), linger_s=0.5, grace_s=0.3)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[str, ForkServerEngine]]:
    """A warm fork server for all tests that leave it alive."""
    mark = uuid.uuid4().hex
    backend = fresh(mark)
    yield mark, backend
    backend.close()
    eventually(lambda: not living_with(mark))


@pytest.fixture
def warm(shared: tuple[str, ForkServerEngine], tmp_path: Path) -> Iterator[Nursery]:
    mark, backend = shared
    made = Nursery(folder=tmp_path, mark=mark, backend=backend)
    yield made
    eventually(lambda: not made.left())


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Nursery]:
    """A fork server of the test's own, which it may harm."""
    mark = uuid.uuid4().hex
    made = Nursery(folder=tmp_path, mark=mark, backend=fresh(mark))
    yield made
    made.backend.close()
    eventually(lambda: not made.living())


def test_our_own_process_never_imports_torch() -> None:
    module = "autoconf_launch.launcher.engines.fork_server"
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ranks_of_a_trial_are_forked(warm: Nursery) -> None:
    assert warm.forks()


def test_a_plain_launch_is_spawned(warm: Nursery) -> None:
    plan = replace(warm.plan("print('torch' in sys.modules)"), task=None)
    assert not warm.was_forked(plan)


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "MALLOC_ARENA_MAX", "LD_PRELOAD", "ODD"])
def test_other_variables_that_act_at_a_start_are_not_served_by_the_same_fork_server(
    warm: Nursery, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.forks()
    monkeypatch.setattr(fork_server, "MOST_FORK_SERVERS", 1)
    assert not warm.forks(**{name: ""})


@pytest.mark.parametrize(
    "name", ["RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR"]
)
def test_variables_of_a_rank_are_served_by_the_same_fork_server(
    warm: Nursery, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.forks()
    monkeypatch.setattr(fork_server, "MOST_FORK_SERVERS", 1)
    assert warm.forks(**{name: "0"})


def test_ranks_with_unlike_variables_are_spawned(warm: Nursery) -> None:
    plan = warm.plan(FORKED, ranks=2)
    odd = replace(plan.ranks[1], environment=(*plan.ranks[1].environment, ("KMP_A", "1")))
    assert not warm.was_forked(replace(plan, ranks=(plan.ranks[0], odd)))


def test_a_hung_rank_is_cancelled_with_the_reason_given(warm: Nursery) -> None:
    job = warm.start_and_await(HANG, ranks=2)
    warm.backend.cancel(job, TIMED_OUT)
    end = warm.end_of(job)
    assert (end.exit_code, end.outcome) == (143, FailedTrial(failure=TIMED_OUT))


def test_a_rank_that_ignores_sigterm_is_killed(warm: Nursery) -> None:
    job = warm.start_and_await(DEAF)
    warm.backend.cancel(job, TIMED_OUT)
    assert warm.end_of(job, timeout_s=2).exit_code == 137


def test_a_crash_ends_the_other_rank(warm: Nursery) -> None:
    end = warm.run("if rank == 1: sys.exit(3)\ntime.sleep(100)", ranks=2)
    assert end.exit_code == 3


def test_nothing_that_a_rank_started_outlives_its_success(warm: Nursery) -> None:
    assert warm.run(LEAVE_BEHIND + "report()").exit_code == 0
    assert warm.left() == []


def test_a_killed_agent_leaves_nothing_behind(warm: Nursery) -> None:
    job = warm.start_and_await(LEAVE_BEHIND + DEAF, ranks=2)
    assert isinstance(job, LocalJob)
    assert warm.backend.poll([job]) == (None,)
    assert job.agent.session is not None
    os.kill(job.agent.session, signal.SIGKILL)
    end = warm.end_of(job, timeout_s=2)
    assert warm.left() == []
    assert isinstance(end.outcome, FailedTrial)
    assert (
        end.outcome.failure.detail == "the process that watched the ranks died without reporting"
    )


def test_several_jobs_run_side_by_side(warm: Nursery) -> None:
    jobs = [warm.backend.submit(warm.plan("time.sleep(0.3); report()")) for _ in range(3)]
    assert [warm.end_of(job).exit_code for job in jobs] == [0, 0, 0]


def test_a_cancel_reaches_a_job_whose_fork_server_still_starts(cold: Nursery) -> None:
    job = cold.backend.submit(cold.plan(HANG, ranks=2))
    start_s = time.monotonic()
    cold.backend.cancel(job, TIMED_OUT)
    assert cold.end_of(job, timeout_s=60).outcome == FailedTrial(failure=TIMED_OUT)
    assert time.monotonic() - start_s < 0.5  # torch takes longer to be imported
    assert cold.forks()


def test_who_waits_for_a_fork_server_that_a_cancel_ends_is_spawned(cold: Nursery) -> None:
    other, job = (cold.backend.submit(cold.plan(FORKED)) for _ in range(2))
    cold.backend.cancel(other, TIMED_OUT)
    assert isinstance(cold.end_of(job, timeout_s=60).outcome, Measurement)


@pytest.mark.slow
def test_a_killed_fork_server_is_replaced_and_how_it_died_is_told(
    cold: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(cold.backend, "_notify", lambda note: told.append(note.text))
    assert cold.forks()
    cold.kill_fork_server()
    assert [cold.forks(), cold.forks()] == [True, True]
    (text,) = told
    assert "was killed by SIGKILL" in text


@pytest.mark.slow
def test_fork_servers_that_are_killed_again_and_again_are_given_up(
    cold: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "MOST_REPLACED", 0)
    assert cold.forks()
    cold.kill_fork_server()
    assert not cold.forks()


def test_a_stopped_agent_obeys_a_cancel(warm: Nursery) -> None:
    job = warm.start_and_await(HANG)
    assert isinstance(job, LocalJob)
    assert warm.backend.poll([job]) == (None,)
    assert job.agent.session is not None
    os.kill(job.agent.session, signal.SIGSTOP)
    warm.backend.cancel(job, TIMED_OUT)
    assert warm.end_of(job, timeout_s=2).outcome == FailedTrial(failure=TIMED_OUT)


def test_a_cancel_ends_a_job_whose_fork_server_is_stopped(
    cold: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "OBEYS_WITHIN_S", 0.3)
    job = cold.backend.submit(cold.plan(HANG))
    os.kill(cold.fork_server_pid(), signal.SIGSTOP)
    cold.backend.cancel(job, TIMED_OUT)
    assert cold.end_of(job, timeout_s=3).outcome == FailedTrial(failure=TIMED_OUT)


def test_a_job_whose_fork_server_dies_before_it_starts_is_spawned(cold: Nursery) -> None:
    job = cold.backend.submit(cold.plan(FORKED))
    os.kill(cold.fork_server_pid(), signal.SIGKILL)
    assert isinstance(cold.end_of(job).outcome, Measurement)
    assert (cold.folder / "stdout.log").read_text() == "False\n"


def test_a_job_goes_on_when_its_fork_server_dies(cold: Nursery) -> None:
    cold.forks()
    job = cold.start_and_await("ready(); time.sleep(0.3); report()")
    os.kill(cold.fork_server_pid(), signal.SIGKILL)
    assert isinstance(cold.end_of(job).outcome, Measurement)


def test_a_fork_server_that_says_nothing_is_given_up(
    cold: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "ANSWERS_WITHIN_S", 0.2)
    job = cold.backend.submit(cold.plan(FORKED))
    os.kill(cold.fork_server_pid(), signal.SIGSTOP)
    while cold.backend.poll([job])[0] is None:
        cold.backend.wait([job], 0.1)
    assert (cold.folder / "stdout.log").read_text() == "False\n"


def test_a_fork_server_with_a_second_thread_refuses(cold: Nursery) -> None:
    (cold.folder / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    assert not cold.forks(PYTHONPATH=str(cold.folder))


BOUND = """
import os
from shutil import rmtree
os.environ["SET_AT_IMPORT"] = "1"
"""
TRAINING = """
import os, shutil, sys
print("torch" in sys.modules, os.environ.get("SET_AT_IMPORT"), flush=True)
import bound
print(bound.rmtree is shutil.rmtree, hasattr(bound.rmtree, "__wrapped__"), flush=True)
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(9):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def test_a_fork_of_an_external_script_is_probed_as_a_new_interpreter_is(cold: Nursery) -> None:
    (cold.folder / "lib").mkdir()
    (cold.folder / "lib" / "bound.py").write_text(BOUND)
    cold.backend._imports = ("torch", "bound:rmtree", "missing.module")
    plan = cold.plan("")
    (cold.folder / "rank.py").write_text(TRAINING)
    assert plan.task is not None
    probe = dict(probe_environment(plan.task, cold.folder))
    path = os.pathsep.join((probe["PYTHONPATH"], str(cold.folder / "lib")))
    rank = replace(
        plan.ranks[0],
        environment=(*plan.ranks[0].environment, *(probe | {"PYTHONPATH": path}).items()),
    )
    end = cold.end_of(cold.backend.submit(replace(plan, ranks=(rank,))), timeout_s=120)
    assert isinstance(end.outcome, Measurement), end
    assert (cold.folder / "stdout.log").read_text() == "True 1\nTrue True\n"


def test_the_verification_run_of_an_external_script_starts_like_its_training(
    cold: Nursery,
) -> None:
    plan = cold.plan(FORKED)
    assert plan.task is not None
    verification = replace(plan, task=replace(plan.task, soak=True))
    assert cold.was_forked(verification)
    cold.backend._imports = ("torch",)
    assert not cold.was_forked(verification)


def test_an_early_server_forks_the_first_launch_with_its_variables(cold: Nursery) -> None:
    with early_fork_server(cold.backend._variables, str(cold.folder), ()):
        (early,) = fork_server._EARLY
        assert cold.forks()
        assert cold.fork_server_pid() == early.pid


def test_an_early_server_ends_if_the_first_launch_has_other_variables(cold: Nursery) -> None:
    with early_fork_server({**cold.backend._variables, "ODD": "1"}, str(cold.folder), ()):
        (early,) = fork_server._EARLY
        cold.backend.submit(cold.plan(FORKED))
        assert early.death is not None
        assert cold.fork_server_pid() != early.pid


def test_an_early_server_ends_with_a_command_that_launches_nothing(cold: Nursery) -> None:
    with early_fork_server(cold.backend._variables, str(cold.folder), ()):
        (early,) = fork_server._EARLY
    assert early.death is not None


CONTROLLER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from autoconf_launch.core import Mode, RankTask
from autoconf_launch.launcher.engines import ForkServerEngine
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
folder = sys.argv[1]
rank = RankPlan(rank=0, local_rank=0, argv=(sys.executable, "-u", "rank.py"),
                environment=(("RANK", "0"), ("WORLD_SIZE", "1")))
job = ForkServerEngine().submit(LaunchPlan(
    name="x", ranks=(rank,), working_directory=folder, folder=folder,
    task=RankTask(mode=Mode.MEASURE, folder=folder, attempt="now")))
print(job.pid, flush=True)
time.sleep(100)
"""


def test_a_killed_controller_leaves_nothing_behind_after_2_seconds(cold: Nursery) -> None:
    cold.plan(LEAVE_BEHIND + DEAF)
    controller = subprocess.Popen(
        (sys.executable, "-c", CONTROLLER, str(cold.folder)),
        env=variables(cold.mark),
        stdout=subprocess.PIPE,
    )
    assert controller.stdout is not None
    pid = int(controller.stdout.readline())
    eventually((cold.folder / "ready0").exists, timeout_s=60)
    controller.kill()
    controller.communicate()
    assert await_agent(pid, 2.0)
    assert cold.living() == []


def test_a_controller_that_is_killed_while_its_fork_server_imports_takes_it_along(
    cold: Nursery,
) -> None:
    cold.plan("report()")
    controller = subprocess.Popen(
        (sys.executable, "-c", CONTROLLER, str(cold.folder)),
        env=variables(cold.mark),
        stdout=subprocess.PIPE,
    )
    assert controller.stdout is not None
    controller.stdout.readline()
    controller.kill()
    controller.communicate()
    time.sleep(1.5)
    assert [Path(f"/proc/{p}/cmdline").read_bytes() for p in cold.living()] == []


def test_closing_ends_the_fork_server(cold: Nursery) -> None:
    cold.backend.submit(cold.plan("report()"))
    pid = cold.fork_server_pid()
    cold.backend.close()
    assert not Path(f"/proc/{pid}").exists()
