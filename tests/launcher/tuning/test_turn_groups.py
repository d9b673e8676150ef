"""Launches that take turns: failures, departures and delays of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoconf_launch.autotuner.measurement import EFFORTS, PRIOR
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    FailedTrial,
    Measurement,
    Outcome,
    Record,
    Trial,
    Turn,
)
from autoconf_launch.core import (
    STEPS_FILE,
    Candidate,
    Failure,
    FailureKind,
    Layout,
    MemoryUse,
    Mode,
    RankTask,
)
from autoconf_launch.launcher.engines import Job, JobEnd
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.hosts import Share
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.tuning import Controller
from autoconf_launch.launcher.tuning.running import Running, Waiting
from autoconf_launch.launcher.tuning.turns import TurnGroup

from ..controlled import LIMITS, ReplayIO, open_journal
from ..replay_backend import ReplayBackend, ReplayJob

MEMORY = MemoryUse(free_before_bytes=100, peak_bytes=10, limit_bytes=100)
SAME = Measurement(step_s=(1.0, 1.01), samples_per_step=8, world_size=2, memory=MEMORY)
LOST = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="address in use"))


def trial(number: int) -> Trial:
    layout = Layout(micro_batch=1 + number)
    return Trial(
        number=number,
        name=f"z0_gas1_tmbspg{number}",
        candidate=Candidate(layout=layout),
        space="z0",
    )


class OneByOne(ReplayBackend):
    """Ends the job that was submitted last, at each ``wait``."""

    def __init__(self, records: Iterable[Record]) -> None:
        super().__init__(records)
        self._ended: list[Job] = []

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        return tuple(
            super(OneByOne, self).poll([job])[0] if job in self._ended else None for job in jobs
        )

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        own = [job for job in jobs if isinstance(job, ReplayJob)]
        self._ended += [job for job in own if job.reason] or own[-1:]


class Reporting(ReplayIO):
    """The ranks of every launch have reported whenever one ends, or of none."""

    def __init__(self, *, reported: bool) -> None:
        super().__init__()
        self._reported = reported

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        return SAME if self._reported else None


@dataclass
class Played:
    """Rounds of three launches, the last of which has a special answer at first."""

    finals: Playoff
    events: list[Event] = field(default_factory=list)
    kept: tuple[Record, ...] = ()

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    @property
    def kinds(self) -> list[FailureKind]:
        return [record.failure.kind for record in self.kept if record.failure]

    def turns(self, attempt: int) -> dict[str, bool]:
        return {
            record.trial.name: record.trial.turn is not None
            for record in self.kept
            if record.trial.attempt == attempt
        }


def play(folder: Path, *first: Outcome, reported: bool = True) -> Played:
    """``first`` is what the first launches of the third one come to; all else goes well."""
    searched = [Record(trial=trial(n), outcome=SAME, wall_s=1.0) for n in range(3)]
    budget = PlayoffBudget(effort=EFFORTS["thorough"])
    played = Played(Playoff(searched, OBJECTIVES["throughput"], noise=PRIOR, budget=budget))
    answers = []
    for record in searched:
        name = f"{record.trial.name}_final"
        special = first if record.trial.number == 2 else ()
        for attempt, outcome in enumerate((*special, *(SAME,) * 60)):
            again = replace(record.trial, name=name, attempt=attempt)
            answers.append(replace(record, trial=again, outcome=outcome))
    with open_journal(folder) as journal:
        controller = Controller(
            played.finals,
            OneByOne(answers),
            Reporting(reported=reported),
            journal=journal,
            listener=played.events.append,
            limits=LIMITS,
        )
        controller.run((Share(),) * 3)
        played.kept = journal.read().finals
    return played


def test_a_group_that_was_gone_round_to_its_end_is_one(tmp_path: Path) -> None:
    played = play(tmp_path)
    assert played.turns(1) == {
        "z0_gas1_tmbspg0_final": True,
        "z0_gas1_tmbspg1_final": True,
        "z0_gas1_tmbspg2_final": True,
    }
    assert played.notes == []


def test_who_fails_in_a_group_and_alone_is_left_out_of_the_others_group(tmp_path: Path) -> None:
    played = play(tmp_path, LOST, LOST)
    assert played.kinds == [FailureKind.CRASHED]
    assert played.turns(2) == {"z0_gas1_tmbspg0_final": True, "z0_gas1_tmbspg1_final": True}


def test_who_fails_in_a_group_takes_the_others_down_and_they_run_again(tmp_path: Path) -> None:
    finals = play(tmp_path, LOST, LOST).finals
    assert finals.rounds > 1
    assert all(len(contender.rounds) == finals.rounds for contender in finals.seen.contenders[:-1])


def test_where_a_group_is_to_blame_launches_follow_each_other(tmp_path: Path) -> None:
    played = play(tmp_path, LOST)
    assert played.kinds == []
    assert played.turns(2) == {
        "z0_gas1_tmbspg0_final": False,
        "z0_gas1_tmbspg1_final": False,
        "z0_gas1_tmbspg2_final": False,
    }


def test_both_launches_of_who_fails_beside_others_are_told(tmp_path: Path) -> None:
    failed, alone = play(tmp_path, LOST).notes
    assert (
        "ZeRO 0 · micro 3 · accum 1 failed beside the others (crashed: address in use)" in failed
    )
    assert "one after the other from here on" in alone


def test_who_leaves_before_all_are_done_took_no_turns(tmp_path: Path) -> None:
    played = play(tmp_path, reported=False)
    assert played.turns(1) == {
        "z0_gas1_tmbspg0_final": False,
        "z0_gas1_tmbspg1_final": False,
        "z0_gas1_tmbspg2_final": False,
    }
    assert played.kinds == []


def running(folder: Path, number: int, *steps: int, turn_steps: int = 1) -> Running:
    """A launch in turn that has made these steps."""
    own = folder / str(number)
    own.mkdir()
    lines = [{"rank": 0, "step": step, "wall_s": 0.1, "samples": 1} for step in steps]
    (own / STEPS_FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    task = RankTask(mode=Mode.MEASURE, folder=str(own), attempt="now", turn_steps=turn_steps)
    plan = LaunchPlan(
        name="t", ranks=(), working_directory=".", folder=str(own), task=task, alone=True
    )
    turn = Turn(next_name="next", is_first=number == 0)
    found = Running(
        Waiting(trial=replace(trial(number), turn=turn), plan=plan),
        job=ReplayJob(plan, None),
        share=Share(),
    )
    assert len(list(found.new_steps())) == len(steps)
    return found


def who_waits(*group: Running) -> list[bool]:
    """Each launch of a group: true if it waits for its turn."""
    turns = TurnGroup(lambda one, why: None, lambda one: True, lambda event: None)
    turns.look(group)
    return [one.waits for one in group]


def test_who_has_made_the_fewest_steps_holds_the_others_up(tmp_path: Path) -> None:
    group = [running(tmp_path, 0, 1, 2, 3), running(tmp_path, 1, 1, 2), running(tmp_path, 2, 1, 2)]
    assert who_waits(*group) == [True, False, True]


def test_who_is_in_the_middle_of_a_turn_has_it(tmp_path: Path) -> None:
    group = [
        running(tmp_path, 0, 1, 2, 3, 4, turn_steps=5),
        running(tmp_path, 1, 1, 2, turn_steps=5),
    ]
    assert who_waits(*group) == [False, True]


def test_who_is_being_ended_holds_nobody_up(tmp_path: Path) -> None:
    group = [running(tmp_path, 0, 1), running(tmp_path, 1, 1, 2)]
    group[0].cancelled = True
    assert who_waits(*group) == [False, False]


def test_a_step_of_one_is_a_sign_of_life_of_all(tmp_path: Path) -> None:
    group = [running(tmp_path, 0, 1), running(tmp_path, 1)]
    group[0].progress_s = group[1].progress_s + 100.0
    who_waits(*group)
    assert group[1].progress_s == group[0].progress_s
