"""A trial, its outcome, and both as a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from autoconf_launch.core import (
    EXTRAS,
    KNOBS,
    PIPELINE_SCHEDULES,
    AppliedStrategy,
    Asides,
    Candidate,
    DecodeError,
    Failure,
    Knob,
    Layout,
    MemoryUse,
    Naming,
    Offload,
    Recompute,
    decode,
    encode,
)

SCHEDULE_KNOB = "pipeline_schedule"
"""The extra that names a pipeline's schedule; default: 1F1B, interleaved if it must be."""
GPIPE = PIPELINE_SCHEDULES[0]
RECOMPUTE_LAYERS = "recompute_layers"
"""The extra that says how many layers of each pipeline stage are recomputed in full; all."""
_TAGS = {knob.name: knob.tag for knob in EXTRAS}
_ORDER = {name: number for number, name in enumerate(_TAGS)}
_SHORT: dict[Enum, str] = {
    Recompute.SELECTIVE: "sel",
    Offload.OPTIMIZER: "opt",
    Offload.PARAMETERS: "par",
}
_LARGE = 9000
_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
THROTTLED = _HW_SLOWDOWN | _SW_THERMAL | _HW_THERMAL | _POWER_BRAKE
"""Bits of NVML's clocks event reasons that slow a GPU down by heat or a failing supply.

The others do not: 0x1 is an idle GPU, 0x2 and 0x100 clocks that were set by hand, 0x4 the power
limit, which every large training reaches, and 0x10 the clock of a group of GPUs.
"""
_T = TypeVar("_T")
_MOST_SIZE = 2**31


def candidate_name(candidate: Candidate) -> str:
    """A name such as ``z1_rbs5.0e+07_gas1_tmbspg11``, different for each candidate of a launch.

    Only the number of ranks is not in it. Usable as a file name.
    """
    parts = [_layout_part(candidate, knob) for knob in KNOBS]
    extras = [_extra_part(name, value) for name, value in sorted(candidate.extras, key=_order)]
    return "_".join(part for part in (*parts[:-2], *extras, *parts[-2:]) if part)


def extra_order(name: str) -> tuple[int, str]:
    """Sort key of an extra's name: registered ones first, in their order."""
    return (_ORDER[name], "") if name in _ORDER else (len(_ORDER), name)


def _order(extra: tuple[str, object]) -> tuple[int, str]:
    return extra_order(extra[0])


def _layout_part(candidate: Candidate, knob: Knob) -> str:
    value = getattr(candidate.layout, knob.name)
    if knob.naming is Naming.NEVER:
        return ""
    if knob.naming is Naming.UNLESS_DEFAULT and value == knob.default:
        return ""
    return f"{knob.tag}{_text(value)}"


def _extra_part(name: str, value: object) -> str:
    tag = _TAGS.get(name)
    if tag is None:
        spelled = quote(name, safe="").replace("-", "%2D").replace(".", "%2E").replace("_", ".")
        return f"{spelled}-{_text(value)}"
    return f"{tag}{_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "T" if value else "F"
    if value is None:
        return "N"
    if isinstance(value, Enum):
        return _SHORT.get(value, str(value.value))
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, tuple):
        return ".".join(map(_number, value))
    return _string(str(value))


def _number(value: int | float) -> str:
    short = f"{value:.1e}"
    return short if value > _LARGE and float(short) == value else repr(value)


def _string(value: str) -> str:
    """Escaped so that no string reads as another value or ends its part of the name."""
    text = quote(value, safe="").replace("-", "%2D").replace("_", "%5F")
    if text and not (text[0].islower() or text[0] == "%"):
        return f"%{ord(text[0]):02X}{text[1:]}"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A place in a turn group: trials that live together and take steps one after another."""

    next_name: str
    """Name of the trial that has the next turn."""
    is_first: bool
    steps: int = 4
    """Steps of each launch that count."""
    length: int = 1
    """Steps in a row in one turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate to be run. Number 0 is the user's configuration."""

    number: int
    name: str
    candidate: Candidate
    space: str
    """Tuning space that it belongs to: ``z0`` to ``z3``."""
    attempt: int = 1
    """Counts runs of the same candidate; above 1 after an out-of-memory that was not sure."""
    final: bool = False
    """Measures again, at the end, what the search has measured; counts for no stage. ``attempt``
    is then the number of its round."""
    again: int = 0
    """Above 0 if it measures again, during the search, what that has measured: how many trials
    had come back before. ``attempt`` is then the number of its repeat; counts for no stage."""
    doubted: bool = False
    """``again`` because that was a surprise."""
    soak_steps: int = 0
    """Above 0 for the winner's soak, a launch as the training's own; counts for no stage."""
    timed_steps: int = 0
    """Number of timed steps of a final that takes no turns; 0 for all other launches."""
    turn: Turn | None = None
    """None: it has the machine to itself, or a share of it."""

    @property
    def is_soak(self) -> bool:
        """True if it is the winner's verification run."""
        return self.soak_steps > 0

    @property
    def is_of_search(self) -> bool:
        """True if it is the search's first launch of its configuration."""
        return not (self.again or self.final or self.is_soak)

    def as_soak(self, name: str, *, attempt: int, steps: int | None = None) -> Trial:
        """A launch of the same as the training's own; None: of as many steps as it has."""
        made = replace(self, name=name, attempt=attempt, final=False, turn=None)
        return made if steps is None else replace(made, soak_steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Timed optimizer steps of one trial.

    ``step_s`` has one entry for each step that counts, the slowest rank of that step.
    ``flops_per_step`` is over all ranks; ``memory`` is of the rank that used most.
    ``first_step`` is the number of the first step that counts; None in journals of before.
    ``all_losses`` has one entry for each step from the first on, ``losses`` for each that counts.
    ``phases`` are the mean seconds of a step's named phases, if it was taken apart (a soak).
    ``extrapolated_from`` is the number of micro-batches that a rank made of a step too long to be
    made; ``step_s`` then has one extrapolated step for each of them that counts.
    ``asides`` are a script's actions between its steps, if a probe recorded them (a soak).
    ``above_peak``: its FLOPS are above its GPUs' peak, so their count or the time is wrong.
    """

    step_s: tuple[float, ...]
    samples_per_step: int
    world_size: int
    memory: MemoryUse | None = None
    applied: AppliedStrategy | None = None
    flops_per_step: float | None = None
    losses: tuple[float, ...] = ()
    first_step: int | None = None
    all_losses: tuple[float, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    extrapolated_from: int | None = None
    asides: Asides | None = None
    above_peak: bool = False

    @property
    def mean_step_s(self) -> float:
        """Mean seconds per optimizer step."""
        return sum(self.step_s) / len(self.step_s)

    @property
    def throughput_per_s(self) -> float:
        """Samples per second over all ranks."""
        return self.samples_per_step / self.mean_step_s

    @property
    def latency_ms(self) -> float:
        """Milliseconds per optimizer step."""
        return 1e3 * self.mean_step_s

    @property
    def flops_per_gpu_per_s(self) -> float | None:
        """Floating-point operations per second and rank, if they were counted."""
        if self.flops_per_step is None:
            return None
        return self.flops_per_step / self.world_size / self.mean_step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A failure with the memory that was seen; ``memory`` tells whether it was really full.

    ``asides`` as in :class:`Measurement`, up to the failure.
    """

    failure: Failure
    memory: MemoryUse | None = None
    asides: Asides | None = None


Outcome: TypeAlias = Measurement | FailedTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Prediction of the cost models for a candidate; None if they cannot predict.

    ``band`` is the relative error to expect of ``step_s`` (0.2 is 20 %), ``how`` its source,
    ``least_step_s`` the lower bound of a step, ``parts`` the seconds of named parts of a step,
    ``memory_parts`` the bytes of named parts of the peak.
    """

    peak_bytes: int | None
    step_s: float | None
    band: float | None
    how: str
    least_step_s: float | None = None
    parts: tuple[tuple[str, float], ...] = ()
    memory_parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU while a trial ran. ``throttle_reasons`` is the driver's bit mask, 0 for none."""

    slot: int
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None

    @property
    def is_throttled(self) -> bool:
        """True if heat or a failing supply slowed it down."""
        return bool((self.throttle_reasons or 0) & THROTTLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Other influences on the speed of a trial; loads are one-minute averages."""

    load_before: float | None = None
    load_after: float | None = None
    gpus: tuple[GpuState, ...] = ()

    @property
    def is_throttled(self) -> bool:
        """True if any of its GPUs was slowed down by heat or a failing supply."""
        return any(gpu.is_throttled for gpu in self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A trial with its outcome, as the journal keeps it. ``wall_s`` is the whole trial."""

    trial: Trial
    outcome: Outcome
    wall_s: float
    prediction: Prediction | None = None
    conditions: Conditions | None = None

    @property
    def measurement(self) -> Measurement | None:
        """The measurement, unless the trial failed."""
        return self.outcome if isinstance(self.outcome, Measurement) else None

    @property
    def is_throttled(self) -> bool:
        """True if a GPU of it was slowed down by heat or a failing supply."""
        return self.conditions is not None and self.conditions.is_throttled

    @property
    def failure(self) -> Failure | None:
        """The reason why the trial failed, if it did."""
        return self.outcome.failure if isinstance(self.outcome, FailedTrial) else None


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
    if trial.is_soak:
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
    """Read a record that :func:`encode_record` made.

    Raises:
        DecodeError: something is missing or has another type.
    """
    if not isinstance(line, dict):
        raise DecodeError(f"{line!r} is not an object (Record)")
    trial = decode(Trial, line)
    _require_sizes(trial.candidate.layout)
    return Record(
        trial=trial,
        outcome=_outcome(line),
        wall_s=decode(float, line.get("wall_s")),
        prediction=_prediction(line.get("prediction")),
        conditions=_optional(Conditions, line.get("conditions")),
    )


def _require_sizes(layout: Layout) -> None:
    """Refuse sizes of a layout that no launch can have."""
    for field in fields(layout):
        size = getattr(layout, field.name)
        least = 0 if field.name == "zero_stage" else 1
        if type(size) is int:
            _require_size(field.name, size, least)


def _require_size(name: str, size: int, least: int) -> None:
    if not least <= size <= _MOST_SIZE:
        raise DecodeError(f"{name} is {size}, but must be {least} to {_MOST_SIZE}")


def _of_a_final(trial: Trial) -> dict[str, Any]:
    """The fields that only launches of rounds have, if this trial has any."""
    line: dict[str, Any] = {"timed_steps": trial.timed_steps} if trial.timed_steps else {}
    if trial.turn is not None:
        line["turn"] = encode(trial.turn)
    return line


def _outcome(line: dict[str, Any]) -> Outcome:
    if "measurement" in line:
        found = decode(Measurement, line["measurement"])
        for name in ("samples_per_step", "world_size"):
            _require_size(name, getattr(found, name), 1)
        return found
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


def _optional(kind: type[_T], value: object) -> _T | None:
    return None if value is None else decode(kind, value)
