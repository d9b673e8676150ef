"""Trials whose host is lost, and launches of a controller that died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import AutotuningSettings, FailedTrial
from autoconf_launch.core import Failure, FailureKind, HardwareError
from autoconf_launch.launcher.engines import HostSlots, Job, JobEnd
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.hosts import Placement, Share, SlotPool
from autoconf_launch.launcher.plan import LaunchPlan

from ..controlled import ReplayIO, answers_for_all, controller_of, open_journal, space
from ..replay_backend import ReplayBackend

LOST = Failure(kind=FailureKind.NODE_LOST, detail="host a has not answered for 10 s")
PREEMPTED = Failure(kind=FailureKind.PREEMPTED, detail="Slurm took the nodes")


class Placed(Share):
    """Shows in a plan where it was placed."""

    def __init__(self, place: Placement) -> None:
        super().__init__()
        object.__setattr__(self, "_host", place[0].host)

    def place(self, plan: LaunchPlan, *, alone: bool = False) -> LaunchPlan:
        return replace(plan, hosts=(object.__getattribute__(self, "_host"),))


class Failing(ReplayBackend):
    """Loses each launch on a bad host; preempts the first launches of a name."""

    def __init__(self, *bad: str, preempted: int = 0) -> None:
        super().__init__(answers_for_all(space()) * 4)  # an answer for each launch
        self.bad, self.preempted = bad, preempted
        self.ended_orphans: list[tuple[str, str]] = []

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        return tuple(map(self._end, jobs))

    def _end(self, job: Job) -> JobEnd | None:
        (host,) = job.plan.hosts
        if host in self.bad:
            lost = FailedTrial(failure=LOST)
            return JobEnd(exit_code=137, outcome=lost, wall_s=1.0, lost_hosts=(host,))
        if self.preempted:
            self.preempted -= 1
            return JobEnd(exit_code=137, outcome=FailedTrial(failure=PREEMPTED), wall_s=1.0)
        return super().poll([job])[0]

    def end_orphan(self, handle: str, host: str) -> None:
        self.ended_orphans.append((handle, host))


class Killing(Failing):
    """Its launches of one name lose their hosts."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _end(self, job: Job) -> JobEnd | None:
        if job.plan.name != self.name:
            return super()._end(job)
        lost = FailedTrial(failure=LOST)
        return JobEnd(exit_code=137, outcome=lost, wall_s=1.0, lost_hosts=job.plan.hosts)


class Tuned:
    """A study on hosts a, b, … of one slot each."""

    def __init__(self, folder: Path, backend: Failing, hosts: str) -> None:
        self.study = Study(space(), None, AutotuningSettings(tuner_type="gridsearch"))
        self.trial_io, self.said = ReplayIO(), list[str]()
        self.pool = SlotPool([HostSlots(host=host, slots=(0,)) for host in hosts], Placed)
        with open_journal(folder) as journal:
            self.journal = journal
            controller = controller_of(
                self.study, backend, journal, trial_io=self.trial_io, listener=self._hear
            )
            controller.run(self.pool)
            self.contents = journal.read()

    def _hear(self, event: Event) -> None:
        if isinstance(event, Note):
            self.said.append(event.text)


def test_a_trial_whose_host_is_lost_is_measured_elsewhere_and_the_host_gets_no_more(
    tmp_path: Path,
) -> None:
    tuned = Tuned(tmp_path, Failing("a"), "abc")
    assert [record.failure for record in tuned.study.records if record.failure] == []
    assert len(set(tuned.trial_io.planned)) == len(tuned.study.records)
    assert len(tuned.trial_io.planned) == len(tuned.study.records) + 2
    assert tuned.contents.orphans == ()
    assert tuned.pool.set_aside == ("a",)
    assert any("Host a failed twice and gets no more trials." in text for text in tuned.said)


def test_a_tune_without_hosts_ends_and_names_them(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="needs 1 host, but too few are left: a failed twice"):
        Tuned(tmp_path, Failing("a"), "a")


def test_a_preempted_trial_is_launched_again(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path, Failing(preempted=2), "a")
    assert [record.failure for record in tuned.study.records if record.failure] == []
    assert len(tuned.trial_io.planned) == len(tuned.study.records) + 2


def test_a_trial_that_loses_every_host_has_failed_and_no_host_is_set_aside(
    tmp_path: Path,
) -> None:
    tuned = Tuned(tmp_path, Killing("z1_gas1_tmbspg2"), "ab")
    (failed,) = (record for record in tuned.study.records if record.failure)
    assert failed.trial.name == "z1_gas1_tmbspg2"
    why = f"all 3 launches of it lost their hosts (a, b); last: {LOST.detail}"
    assert failed.failure == replace(LOST, detail=why)
    assert len(tuned.trial_io.planned) == len(tuned.study.records) + 2
    assert tuned.pool.set_aside == ()
    assert [r.trial.name for r in tuned.contents.records if r.failure] == ["z1_gas1_tmbspg2"]


def test_a_trial_whose_job_is_cancelled_every_time_has_failed(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path, Failing(preempted=3), "a")
    (failed,) = tuned.study.records
    why = "all 3 launches of it lost their hosts; last: Slurm took the nodes"
    assert failed.failure == replace(PREEMPTED, kind=FailureKind.NODE_LOST, detail=why)


def test_a_host_that_lacks_the_folder_is_a_failure_and_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = replace(LOST, kind=FailureKind.BAD_CONFIG, detail="host a does not see the folder")
    monkeypatch.setattr(f"{__name__}.LOST", odd)
    tuned = Tuned(tmp_path, Failing("a"), "ab")
    assert tuned.study.records[0].failure == odd
    assert tuned.pool.set_aside == ()


def test_launches_of_a_dead_controller_are_ended_first(tmp_path: Path) -> None:
    backend = Failing()
    with open_journal(tmp_path) as journal:
        journal.write_started(name="z0_gas1_tmbspg1", number=0, attempt="a", handle="beef")
        contents = journal.read()
        study = Study(space(2), None, AutotuningSettings(tuner_type="gridsearch"))
        controller = controller_of(study, backend, journal)
        controller.resume(contents.search)
        controller.run(SlotPool([HostSlots(host="x", slots=(0,))], Placed))
    assert [handle for handle, _ in backend.ended_orphans] == ["beef"]
