"""Rows for the knobs beyond layout and micro-batch. Not: when they are tried (phases)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autoconf_launch.core import ConfigError, KnobValue

from .choices import KnobChoice
from .table import LEFT_OUT, Bools, CandidateTable, concat

MOST_COMBINATIONS = 1_000
"""Of further knobs for one stage."""


def with_extras(table: CandidateTable, extras: Sequence[KnobChoice]) -> CandidateTable:
    """Each row with the usual value of each extra, and with every combination of all values.

    Raises:
        ConfigError: there are more than ``MOST_COMBINATIONS`` for a stage.
    """
    if not extras:
        return table
    stages = sorted(set(table["zero_stage"].tolist()))
    return concat([_of_stage(table, extras, stage) for stage in stages])


def usual_rows(table: CandidateTable, extras: Sequence[KnobChoice]) -> Bools:
    """Rows in which each extra has its usual value."""
    usual = np.ones(len(table), np.bool_)
    for choice in extras:
        here = _is_for(table, choice)
        usual &= ~here | table.is_value(choice.knob, _cell(choice.usual))
    return usual


def _of_stage(table: CandidateTable, extras: Sequence[KnobChoice], stage: int) -> CandidateTable:
    part = table.take(table["zero_stage"] == stage)
    here = [choice for choice in extras if choice.is_for(stage) and choice.values]
    for name in {choice.knob for choice in extras} - {choice.knob for choice in here}:
        part = part.with_values(name, [LEFT_OUT] * len(part))
    count = math.prod(len(choice.values) for choice in here)
    if count > MOST_COMBINATIONS:
        names = ", ".join(choice.knob for choice in here)
        raise ConfigError(
            f"The lists of {names} make {count} combinations for ZeRO stage {stage}, but at most "
            f"{MOST_COMBINATIONS} are searched; shorten them."
        )
    usual = combined = part
    for choice in here:
        usual = usual.with_values(choice.knob, [_cell(choice.usual)] * len(usual))
        combined = combined.crossed(choice.knob, [_cell(value) for value in choice.values])
    return concat((usual, combined))


def _is_for(table: CandidateTable, choice: KnobChoice) -> Bools:
    if choice.stages is None:
        return np.ones(len(table), np.bool_)
    return np.isin(table["zero_stage"], choice.stages)


def _cell(value: KnobValue) -> object:
    return LEFT_OUT if value is None else value
