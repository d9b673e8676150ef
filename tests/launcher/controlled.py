"""A study on a replayed journal: the whole loop without a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX
from autoconf_launch.autotuner.playoff import Decider
from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Measurement,
    Outcome,
    Prediction,
    Record,
    SearchSpace,
    Trial,
    build_space,
    candidate_name,
)
from autoconf_launch.core import Candidate, Layout, Mode, RankTask
from autoconf_launch.launcher.events import Event
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Fingerprint, Journal, JournalContents
from autoconf_launch.launcher.tuning import Controller, TrialLimits

from .replay_backend import ReplayBackend

PRINT = Fingerprint(script="a", arguments=(), config="b", hardware=(), versions=())
_AGAIN = 9
LIMITS = TrialLimits(timeout_s=60.0, stall_s=60.0)


def space(sizes: int = 6) -> SearchSpace:
    """Stages 0 to 3 with a few micro-batches."""
    baseline = Candidate(layout=Layout(data_parallel=2, micro_batch=1))
    choices = (
        KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.LISTED),
        KnobChoice("micro_batch", tuple(range(1, sizes + 1)), ChoiceKind.LISTED),
    )
    return build_space(baseline, choices, GlobalBatchRule(), AutotuningSettings())


def steps_of(candidate: Candidate) -> Measurement:
    """Faster with larger micro-batches, slower with later stages."""
    layout = candidate.layout
    step_s = 0.1 + 0.01 * layout.micro_batch * (1 + layout.zero_stage)
    return Measurement(
        step_s=(step_s, step_s * 1.01), samples_per_step=layout.global_batch, world_size=2
    )


def answers_for_all(searched: SearchSpace) -> tuple[Record, ...]:
    """An answer for every candidate, and for launching it again."""
    candidates = (searched.baseline, *map(searched.table.row, range(len(searched.table))))
    return tuple(
        Record(
            trial=Trial(number=0, name=f"{candidate_name(c)}{suffix}", candidate=c, space="z0"),
            outcome=steps_of(c),
            wall_s=1.0,
        )
        for c in candidates
        for suffix in ("", *(AGAIN_SUFFIX,) * _AGAIN)
    )


class ReplayIO:
    """Plans without files; remembers what was planned, for the first time and again."""

    def __init__(self) -> None:
        self.planned: list[str] = []
        self.planned_again: list[str] = []

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        (self.planned_again if trial.again else self.planned).append(trial.name)
        task = RankTask(mode=Mode.MEASURE, folder=".", attempt=attempt)
        return LaunchPlan(name=trial.name, ranks=(), working_directory=".", task=task)

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        return None

    def predict(self, trial: Trial) -> Prediction | None:
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome

    def finish(self, record: Record) -> None:
        pass


def controller_of(
    study: Decider,
    backend: ReplayBackend,
    journal: Journal,
    *,
    trial_io: ReplayIO | None = None,
    listener: Callable[[Event], None] = lambda event: None,
    limits: TrialLimits = LIMITS,
) -> Controller:
    return Controller(
        study, backend, trial_io or ReplayIO(), journal=journal, listener=listener, limits=limits
    )


def run_study(
    searched: SearchSpace,
    journal: Journal,
    *,
    contents: JournalContents | None = None,
    settings: AutotuningSettings | None = None,
    listener: Callable[[Event], None] = lambda event: None,
) -> tuple[Study, ReplayIO]:
    """From an empty journal, or on from what one says."""
    study = Study(searched, None, settings or AutotuningSettings(tuner_type="random"))
    trial_io = ReplayIO()
    backend = ReplayBackend(answers_for_all(searched))
    controller = controller_of(study, backend, journal, trial_io=trial_io, listener=listener)
    controller.resume((contents or JournalContents()).search)
    controller.run()
    return study, trial_io


def open_journal(folder: Path) -> Journal:
    """A new journal with its header."""
    journal = Journal(folder / "journal.jsonl")
    journal.write_header(PRINT)
    return journal


__all__ = [
    "PRINT",
    "ReplayIO",
    "answers_for_all",
    "controller_of",
    "open_journal",
    "run_study",
    "space",
    "steps_of",
]
