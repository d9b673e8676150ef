import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import (
    STEPS_FILE,
    Failure,
    FailureKind,
    HardwareError,
    Mode,
    NothingFeasibleError,
    RankTask,
)
from autoconf_launch.launcher.engines import Backend, HostSlots, Job, JobEnd, LocalEngine
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.hosts import WHOLE, SlotPool
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.results import Journal, JournalContents, OpenFolder
from autoconf_launch.launcher.tuning import (
    BudgetSpentError,
    Site,
    TimeBudget,
    TrialLimits,
    profile_run,
)

from ..replay_backend import ReplayBackend, ReplayJob
from .test_lost_hosts import Placed


class Losing(ReplayBackend):
    """Loses each launch on a bad host; the others describe no model."""

    def __init__(self, bad: str) -> None:
        super().__init__(())
        self.bad, self.hosts = bad, list[str]()

    def submit(self, plan: LaunchPlan) -> ReplayJob:
        self.hosts += plan.hosts
        return super().submit(plan)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        (host,) = jobs[0].plan.hosts
        if host not in self.bad:
            return (JobEnd(exit_code=0, outcome=None, wall_s=1.0),)
        failure = Failure(kind=FailureKind.NODE_LOST, detail=f"host {host} is silent")
        outcome = FailedTrial(failure=failure)
        return (JobEnd(exit_code=137, outcome=outcome, wall_s=1.0, lost_hosts=(host,)),)


def site_of(backend: Backend, pool: SlotPool, journal: Journal) -> Site:
    folder = OpenFolder(journal=journal, contents=JournalContents())
    return Site(backend=backend, pool=pool, folder=folder)


def test_a_long_profile_run_says_once_where_its_output_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_run, "_SLOW_S", 0.2)
    monkeypatch.setattr(profile_run, "HEARTBEAT_S", 0.1)
    argv = (sys.executable, "-c", "import time; time.sleep(1.5)")
    rank = RankPlan(rank=0, local_rank=0, argv=argv, environment=())
    folder = str(tmp_path)
    plan = LaunchPlan(name="profile", ranks=(rank,), working_directory=folder, folder=folder)
    heard: list[Event] = []
    with Journal(tmp_path / "journal.jsonl") as journal, pytest.raises(NothingFeasibleError):
        profile_run.run_profile(
            lambda: plan,
            site_of(LocalEngine(), SlotPool.of_shares(WHOLE), journal),
            TrialLimits(timeout_s=60.0, stall_s=60.0),
            heard.append,
        )
    text = f"The profile run has taken 0.2 s so far; its output is in {tmp_path}."
    assert heard == [Note(text=text)]


@pytest.mark.parametrize(
    ("bad", "hosts", "error"),
    [
        ("ab", "abc", "ended without describing its model"),
        ("a", "a", r"all 2 launches of it lost their hosts \(a\); last: host a is silent; repair"),
        ("abc", "abc", r"all 3 launches of it lost their hosts \(a, b, c\); last: host c is"),
    ],
)
def test_a_profile_run_that_loses_its_host_runs_on_another_one(
    tmp_path: Path, bad: str, hosts: str, error: str
) -> None:
    plan = LaunchPlan(name="profile", ranks=(), working_directory=".", folder=str(tmp_path))
    backend, heard = Losing(bad), list[Event]()
    pool = SlotPool([HostSlots(host=host, slots=(0,)) for host in hosts], Placed)
    kind = HardwareError if set(hosts) <= set(bad) else NothingFeasibleError
    with Journal(tmp_path / "journal.jsonl") as journal, pytest.raises(kind, match=error):
        profile_run.run_profile(
            lambda: plan,
            site_of(backend, pool, journal),
            TrialLimits(timeout_s=60.0, stall_s=60.0),
            heard.append,
        )
    again = backend.hosts[: len(heard)]
    texts = [f"The profile run is launched again: host {host} is silent." for host in again]
    assert heard == [Note(text=text, warning=True) for text in texts]


def test_the_deadline_of_the_budget_ends_a_profile_run_with_a_budget_to_type(
    tmp_path: Path,
) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    rank = RankPlan(rank=0, local_rank=0, argv=argv, environment=())
    folder = str(tmp_path)
    task = RankTask(mode=Mode.PROFILE, folder=folder, attempt="one")
    plan = LaunchPlan(
        name="profile", ranks=(rank,), working_directory=folder, folder=folder, task=task
    )
    budget, began_s = TimeBudget(whole_s=0.5), time.monotonic()
    (tmp_path / STEPS_FILE).write_text(
        '{"rank": 0, "step": 1, "wall_s": 12.5, "samples": 4, "loss": null}\n'
    )
    text = "did not end within the budget of 0 s.* the first ended after 12 s.* --budget 30s"
    with (
        Journal(tmp_path / "journal.jsonl") as journal,
        pytest.raises(BudgetSpentError, match=text),
    ):
        profile_run.run_profile(
            lambda: plan,
            site_of(LocalEngine(), SlotPool.of_shares(WHOLE), journal),
            TrialLimits(timeout_s=60.0, stall_s=60.0, budget=budget),
            lambda event: None,
        )
    assert time.monotonic() - began_s < 30.0
