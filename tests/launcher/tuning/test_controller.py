from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget, choose_contenders
from autoconf_launch.autotuner.search import SearchLimits, StopKind, Study
from autoconf_launch.autotuner.space import AutotuningSettings, FailedTrial, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import Job, JobEnd
from autoconf_launch.launcher.events import Event, TrialFinished, TrialStarted
from autoconf_launch.launcher.hosts import Share
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Journal, JournalContents, read_journal
from autoconf_launch.launcher.tuning import Controller, TimeBudget, TrialLimits

from ...autotuner.conftest import timeline
from ..controlled import LIMITS, ReplayIO, answers_for_all, open_journal, run_study, space
from ..replay_backend import ReplayBackend, ReplayJob

SETTINGS = AutotuningSettings(tuner_type="model_based", tuner_early_stopping=3)


def test_every_outcome_is_in_the_journal_in_the_order_it_was_told(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        study, _ = run_study(space(), journal)
        assert journal.read().records == study.records


def test_the_baseline_is_trial_0_and_is_never_run_again(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        _, trial_io = run_study(space(), journal)
    assert trial_io.planned[0] == "z0_gas1_tmbspg1"
    assert len(set(trial_io.planned)) == len(trial_io.planned)


@pytest.mark.parametrize("kept", [1, 2, 5])
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


def test_each_trial_is_announced_once_with_the_best_so_far(tmp_path: Path) -> None:
    events: list[Event] = []
    with open_journal(tmp_path) as journal:
        study, _ = run_study(space(), journal, listener=events.append)
    finished = [event for event in events if isinstance(event, TrialFinished)]
    told = [event.record for event in finished]
    assert told == timeline(study.records, study.repeats)
    assert finished[-1].best == study.best


def test_trials_side_by_side_take_their_time_once_when_resumed(tmp_path: Path) -> None:
    told = [replace(record, wall_s=60.0) for record in answers_for_all(space())[::20][:4]]
    with open_journal(tmp_path) as journal:
        for record in told:
            name = record.trial.name
            journal.write_started(name=name, number=0, attempt=name, handle=None)
        for record in told:
            journal.write_record(record)
        study = Study(space(), None, SETTINGS)
        controller = Controller(
            study,
            ReplayBackend(()),
            ReplayIO(),
            journal=journal,
            listener=lambda event: None,
            limits=LIMITS,
        )
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
        controller = Controller(
            self.study,
            TakingTurns(records),
            ReplayIO(),
            journal=journal,
            listener=self._see,
            limits=LIMITS,
        )
        controller.run(shares or (Share(), Share()))

    def _see(self, event: Event) -> None:
        if isinstance(event, TrialStarted):
            self.beside[event.trial.name] = len(self.running)
            self.running.append(event.trial.name)
            self.starts.append(event.trial.name)
        elif isinstance(event, TrialFinished):
            self.running = [n for n in self.running if n != event.record.trial.name]


def test_as_many_trials_run_as_there_are_shares(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, answers_for_all(space()))
    assert max(seen.beside.values()) == 1


def test_the_baseline_runs_alone(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, answers_for_all(space()))
    baseline, second, *_ = seen.beside.items()
    assert baseline == ("z0_gas1_tmbspg1", 0)
    assert second[1] == 0


def test_trials_side_by_side_are_journalled_as_they_end(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, answers_for_all(space()))
        contents = journal.read()
    assert contents.records == seen.study.records
    assert contents.orphans == ()
    assert [r.trial.number for r in contents.records[:3]] == [0, 2, 3]


def test_who_runs_out_of_a_shares_memory_runs_again_alone(tmp_path: Path) -> None:
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    fine = answers_for_all(space())
    in_share = [replace(r, outcome=full) for r in fine if r.trial.name == "z0_gas1_tmbspg3"]
    small = Share(memory_bytes=10)
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, [*in_share, *fine], small, small)
    assert seen.starts.count("z0_gas1_tmbspg3") == 2
    assert [r.failure for r in seen.study.records] == [None] * len(seen.study.records)


def test_who_runs_out_of_all_memory_has_failed(tmp_path: Path) -> None:
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    records = [
        replace(r, outcome=full) if r.trial.name == "z0_gas1_tmbspg3" else r
        for r in answers_for_all(space())
    ]
    small = Share(memory_bytes=10)
    twice = [*records, *(r for r in records if r.failure)]
    with open_journal(tmp_path) as journal:
        seen = SideBySide(journal, twice, small, small)
    assert "z0_gas1_tmbspg3" in {r.trial.name for r in seen.study.records if r.failure}


def finals_of(
    study: Study, journal: Journal, contents: JournalContents
) -> tuple[Playoff, list[LaunchPlan]]:
    """Measure the best again; the plans that were submitted."""
    chosen = choose_contenders(
        study.records, study.objective, PlayoffBudget(), study.seen.noise, side_by_side=True
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

    controller = Controller(
        finals,
        Seen(again),
        ReplayIO(),
        journal=journal,
        listener=lambda event: None,
        limits=LIMITS,
    )
    controller.resume(contents.rounds)
    controller.run()
    return finals, plans


def test_finals_are_launches_that_the_journal_keeps_apart(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        study, _ = run_study(space(), journal, settings=SETTINGS)
        finals, plans = finals_of(study, journal, JournalContents())
        contents = journal.read()
    assert len(plans) == len(finals.records) > 2
    assert (contents.records, contents.finals) == (study.records, finals.records)
    assert contents.orphans == ()


def test_a_resumed_study_repeats_no_final(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        study, _ = run_study(space(), journal, settings=SETTINGS)
        finals, _ = finals_of(study, journal, JournalContents())
        resumed, plans = finals_of(study, journal, journal.read())
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
        controller = Controller(
            study,
            Endless(answers_for_all(space())),
            ReplayIO(),
            journal=journal,
            listener=lambda event: None,
            limits=TrialLimits(timeout_s=1e6, stall_s=1e6, budget=budget),
        )
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
        controller = Controller(
            study,
            ReplayBackend(answers_for_all(space())),
            ReplayIO(),
            journal=journal,
            listener=lambda event: None,
            limits=TrialLimits(timeout_s=60.0, stall_s=60.0, budget=TimeBudget(whole_s=100.0)),
        )
        controller.resume(journal.read().search)
        before = len(study.records)
        controller.run()
    assert controller.elapsed_s >= 150.0
    assert len(study.records) > before
