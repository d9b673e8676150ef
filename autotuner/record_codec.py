"""Records as the journal's JSON objects and back. Not: the journal's file."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

from autoconf_launch.core import DecodeError, Failure, MemoryUse, decode, encode
from autoconf_launch.core.asides import Asides

from .trial import (
    Conditions,
    FailedTrial,
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
)

T = TypeVar("T")


def encode_record(record: Record) -> dict[str, Any]:
    """``{"name", "number", "candidate", …, "measurement" | "failure"}``, plain JSON values."""
    trial, outcome = record.trial, record.outcome
    line = {
        "name": trial.name,
        "number": trial.number,
        "attempt": trial.attempt,
        "space": trial.space,
        "candidate": encode(trial.candidate),
        "wall_s": encode(record.wall_s),
        "prediction": encode(record.prediction),
    }
    if trial.again:
        line |= {"again": trial.again, "doubted": trial.doubted}
    if trial.soak_steps:
        line["soak_steps"] = trial.soak_steps
    line |= _of_a_final(trial)
    if record.conditions is not None:
        line["conditions"] = encode(record.conditions)
    if isinstance(outcome, Measurement):
        return {**line, "measurement": encode(outcome)}
    if outcome.asides is not None:
        line["asides"] = encode(outcome.asides)
    return {**line, "failure": encode(outcome.failure), "memory": encode(outcome.memory)}


def decode_record(line: Any) -> Record:
    """Read what :func:`encode_record` made.

    Raises:
        DecodeError: something is missing or has another type.
    """
    if not isinstance(line, dict):
        raise DecodeError(f"{line!r} is not an object (Record)")
    return Record(
        trial=decode(Trial, line),
        outcome=_outcome(line),
        wall_s=decode(float, line.get("wall_s")),
        prediction=_prediction(line.get("prediction")),
        conditions=_optional(Conditions, line.get("conditions")),
    )


def _of_a_final(trial: Trial) -> dict[str, Any]:
    """What only launches of rounds have, as far as this one has it."""
    line: dict[str, Any] = {"timed_steps": trial.timed_steps} if trial.timed_steps else {}
    if trial.then is not None:
        line["then"] = trial.then
    if trial.turn is not None:
        line["turn"] = encode(trial.turn)
    return line


def _outcome(line: dict[str, Any]) -> Outcome:
    if "measurement" in line:
        return decode(Measurement, line["measurement"])
    return FailedTrial(
        failure=decode(Failure, line.get("failure")),
        memory=_optional(MemoryUse, line.get("memory")),
        asides=_optional(Asides, line.get("asides")),
    )


def _prediction(value: object) -> Prediction | None:
    """Journals of before have NaN for a least time that is not known."""
    found = _optional(Prediction, value)
    if found is None or found.least_step_s is None or not math.isnan(found.least_step_s):
        return found
    return replace(found, least_step_s=None)


def _optional(kind: type[T], value: object) -> T | None:
    return None if value is None else decode(kind, value)
