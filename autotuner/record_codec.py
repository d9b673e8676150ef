"""Records as the journal's JSON objects and back. Not: the journal's file."""

from __future__ import annotations

from typing import Any, TypeVar

from autoconf_launch.core import DecodeError, Failure, MemoryUse, decode, encode

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
    if trial.soak_steps:
        line["soak_steps"] = trial.soak_steps
    if record.conditions is not None:
        line["conditions"] = encode(record.conditions)
    if isinstance(outcome, Measurement):
        return {**line, "measurement": encode(outcome)}
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
        prediction=_optional(Prediction, line.get("prediction")),
        conditions=_optional(Conditions, line.get("conditions")),
    )


def _outcome(line: dict[str, Any]) -> Outcome:
    if "measurement" in line:
        return decode(Measurement, line["measurement"])
    return FailedTrial(
        failure=decode(Failure, line.get("failure")),
        memory=_optional(MemoryUse, line.get("memory")),
    )


def _optional(kind: type[T], value: object) -> T | None:
    return None if value is None else decode(kind, value)
