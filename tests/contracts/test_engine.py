"""The contract of engines. A new one adds one line to ``WORKSHOPS``."""

import atexit
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import (
    TASK_VARIABLE,
    Candidate,
    Failure,
    FailureKind,
    Layout,
    Mode,
    RankTask,
)
from autoconf_launch.launcher.engines import (
    Backend,
    ForkServerEngine,
    Job,
    JobEnd,
    LocalEngine,
    make_engine,
)
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import RemoteAccess

from ..cluster.clusters import SCHEDULERS, Scheduler
from ..launcher.replay_backend import ReplayBackend
from .toy_engine import ToyEngine

REASON = Failure(kind=FailureKind.STALLED, detail="no step for too long", log_tail=("line",))

RANK = """
import json, os, sys, time
if sys.argv[1] == "slow":
    time.sleep(100)
if sys.argv[1] == "fails":
    sys.exit(1)
task = json.loads(os.environ["AUTOCONF_LAUNCH_TASK"])
if sys.argv[1] == "says":
    with open(os.path.join(task["folder"], "said.json"), "w") as file:
        json.dump([sys.argv[2:], os.environ["NASTY"], os.getcwd()], file)
steps = [{"rank": 0, "step": n, "wall_s": 1.0, "samples": 1} for n in range(1, 6)]
result = {"rank": 0, "world_size": 1, "attempt": task["attempt"], "ended_unix_s": time.time(),
          "steps": steps}
with open(os.path.join(task["folder"], "result.json"), "w") as file:
    json.dump(result, file)
"""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """A backend and plans for it, named by their fate: ``works``, ``fails``, ``slow``."""

    backend: Backend
    folder: Path
    program: tuple[str, ...] = ("-I", "-S", "-c", RANK)
    patience_s: float = 60

    def plan(self, fate: str, number: int = 0) -> LaunchPlan:
        folder = str(self.folder / f"{fate}{number}")
        task = RankTask(mode=Mode.MEASURE, folder=folder, attempt="now")
        rank = RankPlan(
            rank=0,
            local_rank=0,
            argv=(sys.executable, *self.program, fate),
            environment=((TASK_VARIABLE, task.to_variable()),),
        )
        return LaunchPlan(
            name=f"{fate}{number}",
            ranks=(rank,),
            working_directory=str(self.folder),
            folder=folder,
            task=task,
        )

    def submit(self, fate: str, number: int = 0) -> Job:
        return self.backend.submit(self.plan(fate, number))

    def ends_of(self, *jobs: Job) -> list[JobEnd]:
        until_s = time.monotonic() + self.patience_s
        while time.monotonic() < until_s:
            ends = self.backend.poll(jobs)
            if all(ends):
                return [end for end in ends if end]
            open_jobs = [job for job, end in zip(jobs, ends, strict=True) if end is None]
            self.backend.wait(open_jobs, 10)
        raise AssertionError("the jobs did not end")

    def end_of(self, job: Job) -> JobEnd:
        return self.ends_of(job)[0]


def local(folder: Path) -> Workshop:
    return Workshop(backend=LocalEngine(), folder=folder)


@cache
def fork_servers() -> ForkServerEngine:
    """Shared by all tests: its fork server starts slowly; it ends with this process."""
    variables = {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    backend = ForkServerEngine(environment=variables)
    atexit.register(backend.close)
    return backend


def fork(folder: Path) -> Workshop:
    script = folder / "rank.py"
    script.write_text(RANK)
    return Workshop(backend=fork_servers(), folder=folder, program=("-u", str(script)))


def replay(folder: Path) -> Workshop:
    measurement = Measurement(step_s=(1.0, 1.0, 1.0), samples_per_step=1, world_size=1)
    failed = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))
    records = [
        record_of(f"{fate}{number}", outcome)
        for fate, outcome in (("works", measurement), ("fails", failed), ("slow", measurement))
        for number in range(5)
    ]
    return Workshop(backend=ReplayBackend(records), folder=folder)


def record_of(name: str, outcome: Outcome) -> Record:
    candidate = Candidate(layout=Layout())
    trial = Trial(number=0, name=name, candidate=candidate, space="z0")
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def toy(folder: Path) -> Workshop:
    return Workshop(backend=ToyEngine(RemoteAccess(engine="toy")), folder=folder)


def over_hosts(folder: Path) -> Workshop:
    return Workshop(backend=make_engine(RemoteAccess()), folder=folder)


def over_folder(folder: Path) -> Workshop:
    """An engine without a pipe: what it starts here is the agent, without a network."""
    program = folder / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nshift 6\nPMI_RANK=0 exec "$@"\n')
    program.chmod(0o755)
    return Workshop(backend=make_engine(RemoteAccess(engine="mpich")), folder=folder)


@cache
def join(start: Callable[[], AbstractContextManager[Scheduler]]) -> RemoteAccess:
    """A cluster for all tests, which ends with this process."""
    stack = ExitStack()
    running = stack.enter_context(start())
    atexit.register(stack.close)
    for name, value in running.variables.items():
        if name.startswith(("SLURM_", "RAY_", "KUBE")):
            os.environ[name] = value
    return RemoteAccess(engine=running.engine, arguments=running.flags[3:])


def in_cluster(start: Callable[[], AbstractContextManager[Scheduler]], folder: Path) -> Workshop:
    return Workshop(backend=make_engine(join(start)), folder=folder)


WORKSHOPS = (
    *(
        pytest.param(make, id=make.__name__)
        for make in (local, over_hosts, over_folder, fork, replay, toy)
    ),
    *(
        pytest.param(partial(in_cluster, row.values[0]), id=row.id, marks=row.marks)
        for row in SCHEDULERS
    ),
)


@pytest.fixture(params=WORKSHOPS)
def workshop(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Workshop:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    made: Workshop = request.param(tmp_path)
    return made


def test_a_launch_that_works_is_measured_and_its_end_stays(workshop: Workshop) -> None:
    job = workshop.submit("works", 3)
    handle = job.handle
    end = workshop.end_of(job)
    assert isinstance(end.outcome, Measurement)
    assert (end.exit_code, end.outcome.step_s) == (0, (1.0, 1.0, 1.0))
    assert (job.plan, job.handle) == (workshop.plan("works", 3), handle)
    assert re.fullmatch(r"[A-Za-z0-9./\-]*", handle)
    workshop.backend.cancel(job, REASON)
    workshop.backend.send_signal(job, signal.SIGTERM)
    assert workshop.backend.poll([job, job]) == (end, end)
    start_s = time.monotonic()
    workshop.backend.wait([job], 10)
    assert time.monotonic() - start_s < 5


def test_the_orphan_of_another_host_or_without_a_handle_is_not_waited_for(
    workshop: Workshop,
) -> None:
    start_s = time.monotonic()
    workshop.backend.end_orphan("", "here")
    workshop.backend.end_orphan("no handle", "elsewhere")
    assert time.monotonic() - start_s < 1


def test_jobs_run_at_once_and_their_ends_come_in_the_order_of_the_question(
    workshop: Workshop,
) -> None:
    jobs = [workshop.submit(fate, n) for n, fate in enumerate(("works", "works", "fails"))]
    ends = workshop.ends_of(*reversed(jobs))
    assert [end.exit_code for end in ends] == [1, 0, 0]
    assert isinstance(ends[0].outcome, FailedTrial)
    assert ends[0].outcome.failure.kind is FailureKind.CRASHED
    assert workshop.backend.poll([]) == ()


def test_a_cancelled_job_ends_with_the_first_reason_and_the_others_go_on(
    workshop: Workshop,
) -> None:
    start_s = time.monotonic()
    slow = workshop.submit("slow")
    assert time.monotonic() - start_s < 1
    works = workshop.submit("works")
    workshop.backend.cancel(slow, REASON)
    workshop.backend.cancel(slow, replace(REASON, detail="another"))
    cancelled, measured = (end.outcome for end in workshop.ends_of(slow, works))
    assert cancelled == FailedTrial(failure=REASON)
    assert isinstance(measured, Measurement)


def test_a_plan_without_a_task_has_no_outcome(workshop: Workshop) -> None:
    plan = replace(workshop.plan("fails"), task=None)
    assert workshop.end_of(workshop.backend.submit(plan)).outcome is None


NASTY = ("--", "-x", "$(touch pwned)", "`id`", "a'b\"c\\", "two\nlines", "%n %j", "*;|&", "", "é")


def test_words_variables_and_folders_pass_whole(workshop: Workshop) -> None:
    if isinstance(workshop.backend, ReplayBackend):
        pytest.skip("a replay starts nothing")
    plan = workshop.plan("says")
    folder = workshop.folder / "it's $HOME\n%j `x`"
    task = RankTask(mode=Mode.MEASURE, folder=str(folder / "trial"), attempt="now")
    folder.mkdir()
    value = "".join(NASTY)
    rank = replace(
        plan.ranks[0],
        argv=(*plan.ranks[0].argv, *NASTY),
        environment=((TASK_VARIABLE, task.to_variable()), ("NASTY", value)),
    )
    plan = replace(plan, ranks=(rank,), folder=task.folder, task=task)
    plan = replace(plan, working_directory=str(folder))
    end = workshop.end_of(workshop.backend.submit(plan))
    assert isinstance(end.outcome, Measurement), end
    said = json.loads((folder / "trial" / "said.json").read_text())
    assert said == [list(NASTY), value, str(folder)]
    assert not list(workshop.folder.rglob("pwned"))
