"""Names of candidates, and the extras that rules know by name."""

from __future__ import annotations

from enum import Enum
from urllib.parse import quote

from autoconf_launch.core import (
    EXTRAS,
    KNOBS,
    PIPELINE_SCHEDULES,
    Candidate,
    Knob,
    Naming,
    Offload,
    Recompute,
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
