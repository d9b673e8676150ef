"""What a launch of a trial asks of a dialect; a soak's has an evaluation and a checkpoint in it.

Not: how a framework is told so (dialects).
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.trial import Trial
from autoconf_launch.core import Mode, ModelSpec, RankTask
from autoconf_launch.core.saved_paths import SAVED, take_in

from ..dialects import TrialNeeds

_BYTES_PER_PARAMETER = 16
"""Of a checkpoint: weights and both moments of Adam in fp32, and a third of it to spare."""


def needs_of(task: RankTask, trial: Trial, spec: ModelSpec | None) -> TrialNeeds:
    """What this launch asks for; a second attempt at a soak is as any trial.

    Args:
        task: of the launch.
        trial: what is launched.
        spec: the model, where it is known.
    """
    steps = task.most_steps or task.end_step
    is_first = bool(trial.soak_steps) and trial.attempt == 1 and task.mode is Mode.MEASURE
    return TrialNeeds(
        folder=task.folder,
        steps=steps,
        accumulation=trial.candidate.layout.accumulation,
        evaluates=is_first,
        saves=is_first and _has_room(Path(task.folder), spec),
    )


def soak_task(task: RankTask, trial: Trial, spec: ModelSpec | None) -> RankTask:
    """What ranks are asked in a soak: its steps and, in a first attempt, an epoch's end.

    What the script would save after an epoch must find room.
    """
    return replace(
        task,
        start_step=min(task.start_step, trial.soak_steps),
        end_step=trial.soak_steps,
        soak=True,
        ends_epoch=trial.attempt == 1 and _has_room(Path(task.folder), spec),
    )


def clear_saved(folder: Path) -> None:
    """Remove what the script of a trial saved: it can be gigabytes, and is of no training."""
    take_in(folder, is_ours=True)
    output = TrialNeeds(folder=str(folder), steps=0).output
    for path in (output, folder / SAVED):
        shutil.rmtree(path, ignore_errors=True)


def _has_room(folder: Path, spec: ModelSpec | None) -> bool:
    """Whether a checkpoint finds room on the disk of the results; unknown sizes do."""
    with suppress(OSError):
        wanted = _BYTES_PER_PARAMETER * (spec.parameters if spec else 0)
        return shutil.disk_usage(folder).free > wanted
    return True
