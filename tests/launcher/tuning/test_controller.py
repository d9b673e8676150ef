from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import NORMAL
from autoconf_launch.autotuner.playoff import Playoff, choose_contenders
from autoconf_launch.autotuner.search import SearchLimits, StopKind, Study
from autoconf_launch.autotuner.space import AutotuningSettings, FailedTrial, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import Job, JobEnd
from autoconf_launch.launcher.events import Event, TrialFinished, TrialStarted
from autoconf_launch.launcher.hosts import Share
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Journal, JournalContents, read_journal
from autoconf_launch.launcher.tuning import TimeBudget, TrialLimits

from ...autotuner.conftest import timeline
from ..controlled import answers_for_all, controller_of, open_journal, run_study, space
from ..replay_backend import ReplayBackend, ReplayJob

SETTINGS = AutotuningSettings(tuner_type="model_based", tuner_early_stopping=3)


def test_every_outcome_is_announced_once_and_in_the_journal_in_the_order_it_was_told(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    with open_journal(tmp_path) as journal:
        study, trial_io = run_study(space(), journal, listener=events.append)
        assert journal.read().records == study.records
    assert trial_io.planned[0] == "z0_gas1_tmbspg1"  # the baseline
    assert len(set(trial_io.planned)) == len(trial_io.planned)
    finished = [event for event in events if isinstance(event, TrialFinished)]
    assert [event.record for event in finished] == timeline(study.records, study.repeats)
    assert finished[-1].best == study.best


@pytest.mark.parametrize("kept", [1, 5])
def test_a_resumed_study_makes_the_proposals_of_the_uninterrupted_one(
    tmp_path: Path, kept: int
) -> None:
    with open_journal(tmp_path) as journal:
        whole, _ = run_study(space(), journal, settings=SETTINGS)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + 2 * kept]))
    with Journal(path) as journal:
        contents = journal.read()
        resumed, trial_io = run_study(space(), journal, contents=contents, settings=SETTINGS)
    assert [r.trial.name for r in resumed.records] == [r.trial.name for r in whole.records]
    assert len(trial_io.planned) == len(whole.records) - kept


def test_a_torn_last_line_costs_its_own_trial_alone(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        whole, _ = run_study(space(), journal, settings=SETTINGS)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with Journal(path) as journal:
        contents = journal.read()
        told = timeline(whole.records, whole.repeats)
        assert timeline(contents.records, contents.repeats) == told[:-1]
        assert [orphan.name for orphan in contents.orphans] == [told[-1].trial.name]
        run_study(space(), journal, contents=contents, settings=SETTINGS)
    again = read_journal(path)
    assert timeline(again.records, again.repeats) == told


def test_trials_side_by_side_take_their_time_once_when_resumed(tmp_path: Path) -> None:
    told = [replace(record, wall_s=60.0) for record in answers_for_all(space())[::20][:4]]
    with open_journal(tmp_path) as journal:
        for record in told:
            name = record.trial.name
            journal.write_started(name=name, number=0, attempt=name, handle=None)
        for record in told:
            journal.write_record(record)
        study = Study(space(), None, SETTINGS)
        controller = controller_of(study, ReplayBackend(()), journal)
        controller.resume(journal.read().search)
    assert controller.elapsed_s == pytest.approx(60.0, abs=10.0)


class TakingTurns(ReplayBackend):
    """Ends the job that was submitted last, at each ``wait``."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(records)
        self._ended: list[Job] = []

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        ends = super().poll(jobs)
        return tuple(
            end if job in self._ended else None for job, end in zip(jobs, ends, strict=True)
        )

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        self._ended.append(jobs[-1])


class SideBySide:
    """A study on two shares; remembers how many ran when a trial started."""

    def __init__(self, journal: Journal, records: Sequence[Record], *shares: Share) -> None:
        self.study = Study(space(), None, AutotuningSettings(tuner_type="gridsearch"))
        self.running: list[str] = []
        self.beside: dict[str, int] = {}
        self.starts: list[str] = []
        controller = controller_of(self.study, TakingTurns(records), journal, listener=self._see)
        controller.run(shares or (Share(), Share()))

    def _see(self, event: Event) -> None:
        if isinstance(event, TrialStarted):
            self.beside[event.trial.name] = len(self.running)
            self.running.append(event.trial.name)
            self.starts.append(event.trial.name)
        elif isinstance(event, TrialFinished):
            self.running = [n for n in self.running if n != event.record.trial.name]


def test_as_many_trials_run_as_there_are_shares_after_the_baseline_alone(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, answers_for_all(space()))
        contents = journal.read()
    assert max(seen.beside.values()) == 1
    baseline, second, *_ = seen.beside.items()
    assert (baseline, second[1]) == (("z0_gas1_tmbspg1", 0), 0)
    assert (contents.records, contents.orphans) == (seen.study.records, ())
    assert [r.trial.number for r in contents.records[:3]] == [0, 2, 3]


@pytest.mark.parametrize("fails_alone", [False, True])
def test_who_runs_out_of_a_shares_memory_runs_again_alone(
    tmp_path: Path, fails_alone: bool
) -> None:
    name = "z0_gas1_tmbspg3"
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    fine = [r for r in answers_for_all(space()) if not (fails_alone and r.trial.name == name)]
    first = next(r for r in answers_for_all(space()) if r.trial.name == name)
    small, in_share = (
        Share(memory_bytes=10),
        [replace(first, outcome=full)] * (9 if fails_alone else 1),
    )
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, [*in_share, *fine], small, small)
    assert seen.starts.count(name) == 2 or fails_alone
    failed = {record.trial.name for record in seen.study.records if record.failure}
    assert failed == ({name} if fails_alone else set())


def finals_of(
    study: Study, journal: Journal, contents: JournalContents
) -> tuple[Playoff, list[LaunchPlan]]:
    """Measure the best again; the plans that were submitted."""
    chosen = choose_contenders(
        study.records, study.objective, NORMAL, study.seen.noise, side_by_side=True
    )
    finals = Playoff(chosen, study.objective, noise=study.seen.noise)
    again = [
        replace(r, trial=replace(r.trial, name=f"{r.trial.name}_final"))
        for r in study.records
        for _ in range(40)
    ]
    plans: list[LaunchPlan] = []

    class Seen(ReplayBackend):
        def submit(self, plan: LaunchPlan) -> ReplayJob:
            plans.append(plan)
            return super().submit(plan)

    controller = controller_of(finals, Seen(again), journal)
    controller.resume(contents.rounds)
    controller.run()
    return finals, plans


def test_finals_are_launches_that_the_journal_keeps_apart_and_none_is_repeated(
    tmp_path: Path,
) -> None:
    with open_journal(tmp_path) as journal:
        study, _ = run_study(space(), journal, settings=SETTINGS)
        finals, plans = finals_of(study, journal, JournalContents())
        contents = journal.read()
        assert len(plans) == len(finals.records) > 2
        assert (contents.records, contents.finals) == (study.records, finals.records)
        assert contents.orphans == ()
        resumed, plans = finals_of(study, journal, contents)
    assert plans == []
    assert resumed.records == finals.records


class Endless(ReplayBackend):
    """Only the baseline ends; other jobs run until they are cancelled."""

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        return tuple(
            end if job.plan.name == "z0_gas1_tmbspg1" or (end and end.exit_code) else None
            for job, end in zip(jobs, map(self._look, jobs), strict=True)
        )

    def _look(self, job: Job) -> JobEnd | None:
        is_over = job.plan.name == "z0_gas1_tmbspg1" or getattr(job, "reason", None) is not None
        return super().poll((job,))[0] if is_over else None


def test_the_deadline_ends_a_running_trial_which_then_was_not_tried(tmp_path: Path) -> None:
    study = Study(space(), None, SETTINGS, limits=SearchLimits(seconds=60.0))
    now = iter(range(1000))  # each look at the clock takes a second
    budget = TimeBudget(whole_s=60.0, began_s=0.0, clock=lambda: float(next(now)))
    with open_journal(tmp_path) as journal:
        limits = TrialLimits(timeout_s=1e6, stall_s=1e6, budget=budget)
        endless = Endless(answers_for_all(space()))
        controller = controller_of(study, endless, journal, limits=limits)
        reason = controller.run()
        contents = journal.read()
    assert reason.kind is StopKind.BUDGET
    assert [record.trial.name for record in contents.records] == ["z0_gas1_tmbspg1"]
    assert budget.spent_s < 100.0


def test_a_command_that_goes_on_has_its_own_budget(tmp_path: Path) -> None:
    """Time of earlier sessions is in the journal, and does not count again."""
    long = [replace(record, wall_s=50.0) for record in answers_for_all(space())]
    with open_journal(tmp_path) as journal:
        for record in (long[0], *long[20:40:10]):
            journal.write_record(record)
        study = Study(space(), None, SETTINGS, limits=SearchLimits(seconds=100.0))
        limits = TrialLimits(timeout_s=60.0, stall_s=60.0, budget=TimeBudget(whole_s=100.0))
        backend = ReplayBackend(answers_for_all(space()))
        controller = controller_of(study, backend, journal, limits=limits)
        controller.resume(journal.read().search)
        before = len(study.records)
        controller.run()
    assert controller.elapsed_s >= 150.0
    assert len(study.records) > before
