"""What launches again show and trials did not, in sentences. Not: what is chosen (settle)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..measurement import drift, estimate_noise, measured_name, without_drift
from ..search import Study
from ..space import Objective, Record
from .winner import findings


def study_findings(
    study: Study, finals: Sequence[Record], soaks: Sequence[Record] = ()
) -> tuple[str, ...]:
    """Findings of a study, of the rounds and of the soaks after it."""
    return launch_findings(study.records, study.repeats, finals, study.objective, soaks)


def launch_findings(
    records: Sequence[Record],
    repeats: Sequence[Record],
    finals: Sequence[Record],
    objective: Objective,
    soaks: Sequence[Record] = (),
) -> tuple[str, ...]:
    """The same of launches, a journal's for example, in the order in which they came back."""
    compared, noise = without_drift(records, repeats), estimate_noise((*records, *repeats))
    after = findings(compared, finals, objective, soaks, noise)
    return (*repeat_findings(records, repeats), *after)


def repeat_findings(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[str, ...]:
    """A sentence on each repeat that failed or counts instead of its trial, and on the machine.

    Args:
        records: trials as they were measured, in order.
        repeats: of them.
    """
    found = drift(records, repeats)
    trials = {record.trial.name: record for record in records if record.measurement}
    failed = (
        f"{measured_name(record.trial.name)} failed when it was re-measured "
        f"({record.failure.kind.value}: {record.failure.detail}); its first measurement counts."
        for record in repeats
        if record.failure
    )
    doubted = (
        f"{name} took {_milliseconds(trials[name])} per step in its trial, "
        f"{_milliseconds(repeat)} re-measured; the latter counts."
        for repeat in found.doubted
        if (name := measured_name(repeat.trial.name)) in trials
    )
    return (*failed, *doubted, *_machine(found.now))


def _machine(level: float) -> tuple[str, ...]:
    if not level:
        return ()
    slower = f"{100.0 * abs(math.expm1(level)):.0f} % {'slower' if level > 0.0 else 'faster'}"
    return (
        f"The machine was about {slower} at the end of the search than at its start, as repeats "
        "of the baseline showed; trials are compared as they were measured.",
    )


def _milliseconds(record: Record) -> str:
    return f"{record.measurement.latency_ms:.4g} ms" if record.measurement else "-"
