"""Whether the playoff and the verification run measured the same speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..space import Record
from .soak import SoakReport

_CAUSELESS = 0.12
"""Launches minutes apart were seen to differ by as much without cause (DESIGN, rule 11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedGap:
    """Two speeds of the winner that do not agree.

    Attributes:
        measured_s: mean step in the playoff, or in the search where there was none.
        verified_s: mean step in the verification run, a launch as the training's own.
        measured_load: load average at the end of those launches; None where it is not known.
        verified_load: the same of the verification run.
        in_turn: whether the playoff's launches took their steps in turn.
    """

    measured_s: float
    verified_s: float
    measured_load: float | None
    verified_load: float | None
    in_turn: bool


def speed_gap(
    winner: Record | None,
    soak: SoakReport | None,
    playoff: Sequence[Record],
    soaks: Sequence[Record],
) -> SpeedGap | None:
    """What the two measured; None where they agree, or one of them is lacking.

    Args:
        winner: with the steps of all its rounds.
        soak: its verification run.
        playoff: launches of the rounds.
        soaks: verification runs.
    """
    measured = winner.measurement if winner else None
    if winner is None or measured is None or soak is None or not soak.passed or not soak.step_s:
        return None
    if abs(math.log(soak.step_s / measured.mean_step_s)) <= _CAUSELESS:
        return None
    return SpeedGap(
        measured_s=measured.mean_step_s,
        verified_s=soak.step_s,
        measured_load=_load(playoff[-1:] or (winner,)),
        verified_load=_load(soaks[-1:]),
        in_turn=any(record.trial.turn for record in playoff),
    )


def with_step_s(record: Record, step_s: float) -> Record:
    """The record as if each of its steps had taken so long."""
    measured = record.measurement
    return replace(record, outcome=replace(measured, step_s=(step_s,))) if measured else record


def _load(launches: Sequence[Record]) -> float | None:
    """Load average as the last of these ended."""
    conditions = launches[-1].conditions if launches else None
    return conditions.load_after if conditions else None
