"""Rounds of a foreign script one launch of which leaves its group: they end all the same."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import Candidate, Layout, MemoryUse, Mode, RankTask
from autoconf_launch.launcher.engines import LocalEngine
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.hosts import Share
from autoconf_launch.launcher.launch import adopt, probe_environment
from autoconf_launch.launcher.machine import free_port
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.results import Fingerprint, Journal
from autoconf_launch.launcher.tuning import Controller, TrialLimits

SCRIPT = str(Path(__file__).parent / "scripts" / "in_turn.py")
PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=(), versions=())
MEMORY = MemoryUse(free_before_bytes=100, peak_bytes=10, limit_bytes=100)
SAME = Measurement(step_s=(1.0, 1.01), samples_per_step=8, world_size=1, memory=MEMORY)
PATIENCE = TrialLimits(timeout_s=40.0, stall_s=3.0)


class ScriptTrialIO:
    """Plans of one script: in a group its first launch is slow and its second one misbehaves."""

    def __init__(self, folder: Path, what: str, ranks: int) -> None:
        self._folder, self._what, self._ranks = folder, what, ranks

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        task = self._task(trial, attempt)
        own = Path(task.folder)
        shutil.rmtree(own, ignore_errors=True)
        first = self._what if trial.number == 1 else "is_slow"
        argv = (sys.executable, "-u", SCRIPT, first if trial.turn else "goes_well")
        probe = (*probe_environment(task, own), ("OMP_NUM_THREADS", "1"))
        together = (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(free_port())))
        return LaunchPlan(
            name=trial.name,
            ranks=tuple(
                RankPlan(
                    rank=rank,
                    local_rank=rank,
                    argv=argv,
                    environment=(*probe, *together, *self._place(rank)),
                )
                for rank in range(self._ranks)
            ),
            working_directory=str(self._folder),
            folder=task.folder,
            task=task,
        )

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        return adopt(self._task(trial, attempt), world_size=self._ranks)

    def predict(self, trial: Trial) -> Prediction | None:
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome

    def finish(self, record: Record) -> None:
        pass

    def _task(self, trial: Trial, attempt: str) -> RankTask:
        task = RankTask(
            mode=Mode.MEASURE, folder=str(self._folder / trial.name), attempt=attempt, end_step=8
        )
        if trial.turn is None:
            return task
        after = str(self._folder / trial.turn.next_name)
        return replace(task, next_folder=after, first_turn=trial.turn.is_first)

    def _place(self, rank: int) -> tuple[tuple[str, str], ...]:
        if self._ranks == 1:
            return ()
        numbers = {"RANK": rank, "LOCAL_RANK": rank}
        sizes = {"WORLD_SIZE": self._ranks, "LOCAL_WORLD_SIZE": self._ranks}
        return tuple((name, str(value)) for name, value in (numbers | sizes).items())


@dataclass
class Played:
    """A round of two launches, as the journal has it."""

    kept: tuple[Record, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def in_turn(self) -> list[bool]:
        """True if the launches took turns, in the order in which they ended."""
        return [record.trial.turn is not None for record in self.kept]

    @property
    def steps(self) -> list[int]:
        return [len(record.measurement.step_s) for record in self.kept if record.measurement]


def play(folder: Path, what: str, *, ranks: int = 1) -> Played:
    played = Played()

    def hear(event: Event) -> None:
        if isinstance(event, Note):
            played.notes.append(event.text)

    searched = [Record(trial=trial(number), outcome=SAME, wall_s=1.0) for number in range(2)]
    finals = Playoff(
        searched, OBJECTIVES["throughput"], noise=PRIOR, budget=PlayoffBudget(rounds=1)
    )
    with Journal(folder / "journal.jsonl") as journal:
        journal.write_header(PRINT)
        controller = Controller(
            finals,
            LocalEngine(),
            ScriptTrialIO(folder, what, ranks),
            journal=journal,
            listener=hear,
            limits=PATIENCE,
        )
        controller.run((Share(),) * 2)
        played.kept = journal.read().finals
    return played


def trial(number: int) -> Trial:
    layout = Layout(micro_batch=1 + number)
    return Trial(
        number=number,
        name=f"z0_gas1_tmbspg{number}",
        candidate=Candidate(layout=layout),
        space="z0",
    )


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_launches_that_go_well_take_turns(tmp_path: Path, ranks: int) -> None:
    played = play(tmp_path, "goes_well", ranks=ranks)
    assert (played.in_turn, played.steps, played.notes) == ([True, True], [6, 6], [])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["raises", "is_killed", "hangs", "never_steps"])
def test_who_fails_only_beside_others_is_measured_alone(tmp_path: Path, what: str) -> None:
    played = play(tmp_path, what)
    assert (played.in_turn, played.steps) == ([False, False], [6, 6])
    assert ["failed beside the others" in played.notes[0], len(played.notes)] == [True, 2]


@pytest.mark.slow
def test_one_of_two_ranks_that_dies_takes_its_group_down(tmp_path: Path) -> None:
    played = play(tmp_path, "loses_a_rank", ranks=2)
    assert (played.in_turn, played.steps) == ([False, False], [6, 6])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["is_ended_by_a_signal", "trains_in_a_thread"])
def test_who_leaves_while_it_waits_took_no_turns(tmp_path: Path, what: str) -> None:
    played = play(tmp_path, what)
    assert (played.in_turn, played.steps) == ([False, False], [4, 6])
    assert "does not wait for others" in played.notes[0]
