"""Seconds of one optimizer step from the profile run. Not: memory, and no guess without timings.

Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import ModelSpec, Recompute

from ..table import CandidateTable, Floats
from .exchange import Network, exchange_s
from .facts import TrainingFacts
from .line import fit
from .memory import covered

STEP_BAND = 0.3
"""Relative error to expect of a step's seconds; a guess until predictions are calibrated."""

_WORK = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 1.05, Recompute.FULL: 4 / 3}
"""Work of forward and backward over that without recomputation: a full one repeats the forward
pass, a third of it (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepSeconds:
    """Seconds that add up to one step; NaN throughout where no formula covers the row.

    Attributes:
        samples_s_C: what each sample costs, at the rate that large micro-batches reach.
        launch_s_C: what each micro-batch costs whatever its size.
        recompute_s_C: forward passes that are made again.
        communication_s_C: between ranks, where nothing hides it; 0 where links are not known.
        update_s_C: the optimizer's.
    """

    samples_s_C: Floats
    launch_s_C: Floats
    recompute_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        return np.asarray(np.sum([part for _, part in self.parts()], axis=0), np.float64)

    @property
    def least_s_C(self) -> Floats:
        """What no row can beat if samples cost no less than this: no launches, no exchange."""
        return self.samples_s_C + self.recompute_s_C

    def parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``samples``, ``launch``, …) and seconds of each part, in order."""
        return tuple(
            (part.name.removesuffix("_s_C"), getattr(self, part.name)) for part in fields(self)
        )


def step_seconds(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, network: Network | None = None
) -> StepSeconds:
    """Seconds for each row; NaN without timings or where no formula covers the row.

    Args:
        table: the candidates.
        spec: the model with its timings.
        facts: precision.
        network: between ranks; None leaves communication out.
    """
    timed = [(t.micro_batch, t.forward_backward_s) for t in spec.timings if t.forward_backward_s]
    if not timed:
        unknown = np.full(len(table), np.nan)
        return StepSeconds(**{part.name: unknown for part in fields(StepSeconds)})
    line = fit(timed)
    known = np.where(covered(table), 0.0, np.nan)
    work = np.empty(len(table))
    for kind, factor in _WORK.items():
        work[table.is_value("recompute", kind)] = factor
    times, micro = table["accumulation"], table["micro_batch"]
    micro_batch_s = line.at(micro)
    update_s = (spec.optimizer_step_s or 0.0) / np.where(
        table["zero_stage"] > 0, table["data_parallel"], 1
    )
    communication = (
        exchange_s(table, spec, facts, network, micro_batch_s * work)
        if network
        else np.zeros(len(table))
    )
    return StepSeconds(
        samples_s_C=known + times * micro * line.each,
        launch_s_C=known + times * line.fixed,
        recompute_s_C=known + times * micro_batch_s * (work - 1.0),
        communication_s_C=known + communication,
        update_s_C=known + update_s,
    )
