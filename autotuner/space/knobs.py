"""The one registry of canonical knobs, and names of candidates.

A knob is a field of ``Layout`` or an extra that only some frameworks have. Tables, spaces,
strategies and names go through the rows here and know no knob of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias
from urllib.parse import quote

from autoconf_launch.core import (
    PIPELINE_SCHEDULES,
    Candidate,
    ConfigError,
    Offload,
    Recompute,
    nearest_known,
)
from autoconf_launch.core import config_keys as keys

LayoutValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None


class Naming(Enum):
    """When a knob is part of a candidate's name."""

    ALWAYS = "always"
    UNLESS_DEFAULT = "unless default"
    NEVER = "never"
    """It follows from the other knobs and the number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One tunable. Values are ordered: plain numbers by size, others as ``values`` lists them.

    Attributes:
        name: field of ``Layout``, or of an extra.
        tag: its abbreviation in names.
        values: its domain in order; None where any whole number from 1 may stand.
        default: value that a name omits.
        naming: when it is part of a name.
        interned: values are tuples that a table keeps once and refers to by number.
    """

    name: str
    tag: str
    values: tuple[LayoutValue, ...] | None = None
    default: LayoutValue = 1
    naming: Naming = Naming.UNLESS_DEFAULT
    interned: bool = False

    @property
    def is_number(self) -> bool:
        """Whether its values are whole numbers, which a table keeps as they are."""
        return not self.interned and all(type(value) is int for value in self.values or ())


KNOBS: tuple[Knob, ...] = (
    Knob(name="zero_stage", tag="z", values=(0, 1, 2, 3), naming=Naming.ALWAYS),
    Knob(name="data_parallel", tag="dp", naming=Naming.NEVER),
    Knob(name="tensor_parallel", tag="tp"),
    Knob(name="pipeline_parallel", tag="pp"),
    Knob(name="virtual_pipeline", tag="vp"),
    Knob(name="context_parallel", tag="cp"),
    Knob(name="expert_parallel", tag="ep"),
    Knob(name="sequence_parallel", tag="sp", values=(False, True), default=False),
    Knob(name="recompute", tag="ac", values=tuple(Recompute), default=Recompute.NONE),
    Knob(name="offload", tag="off", values=tuple(Offload), default=Offload.NONE),
    Knob(name="placement", tag="place", default=None, interned=True),
    Knob(name="pipeline_split", tag="split", default=None, interned=True),
    Knob(name="micro_batch_split", tag="uneven", default=None, interned=True),
    Knob(name="accumulation", tag="gas", naming=Naming.ALWAYS),
    Knob(name="micro_batch", tag="tmbspg", naming=Naming.ALWAYS),
)
"""Fields of ``Layout`` in the order of names; extras stand before the last two."""

LAYOUT_KNOBS = {knob.name: knob for knob in KNOBS}

SCHEDULE_KNOB = keys.PIPELINE_SCHEDULE[1]
"""The extra that names a pipeline's schedule; omitted: 1F1B, or interleaved where it must be."""
GPIPE = PIPELINE_SCHEDULES[0]
RECOMPUTE_LAYERS = "recompute_layers"
"""The extra that says how many layers of each pipeline stage are recomputed in full; all."""

OFFLOAD_EXTRAS = ("offload_optimizer.device", "offload_param.device")
"""Extras of a framework that say where it keeps a part of the model's state; "none" is the GPU."""

EXTRA_TAGS = {
    SCHEDULE_KNOB: "sched",
    "reduce_bucket_size": "rbs",
    "allgather_bucket_size": "abs",
    "overlap_comm": "oc",
    "reduce_scatter": "rs",
    "contiguous_gradients": "cg",
    "allgather_partitions": "ap",
    OFFLOAD_EXTRAS[0]: "oo",
    OFFLOAD_EXTRAS[1]: "op",
    "bucket_cap_mb": "bcm",
    "gradient_as_bucket_view": "gbv",
    "parameters_as_bucket_view": "pbv",
    "blocks_per_unit": "bpu",
    "forward_prefetch": "fp",
    "shard_ranks": "sr",
    "reshard_after_forward": "raf",
    "reshard_root": "rr",
    RECOMPUTE_LAYERS: "acl",
}
"""Extras with a short tag; others are named in full, as ``name-value``."""

_SHORT: dict[Enum, str] = {
    Recompute.SELECTIVE: "sel",
    Offload.OPTIMIZER: "opt",
    Offload.PARAMETERS: "par",
}
_LARGE = 9000


def parse_value(knob: str, value: object) -> LayoutValue:
    """A value from a user's document as this knob has it; extras pass unchanged.

    Raises:
        ConfigError: the knob cannot have this value.
    """
    row = LAYOUT_KNOBS.get(knob)
    if row is None:
        return value  # type: ignore[return-value]
    if row.values is not None:
        for known in row.values:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return known
        names = (str(_plain(known)) for known in row.values)
        raise ConfigError(f"{knob} is {value!r}; {nearest_known(str(_plain(value)), names)}")
    if row.interned and isinstance(value, (list, tuple)):
        return tuple(_whole(knob, part) for part in value)
    return None if row.interned and value is None else _whole(knob, value)


def _whole(knob: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{knob} is {value!r}, but must be a whole number of at least 1.")
    return value


def candidate_name(candidate: Candidate) -> str:
    """A name such as ``z1_rbs5.0e+07_gas1_tmbspg11``, different for each candidate of a launch.

    Only the number of ranks is not in it. Usable as a file name.
    """
    parts = [_layout_part(candidate, knob) for knob in KNOBS]
    extras = [_extra_part(name, value) for name, value in sorted(candidate.extras, key=_order)]
    return "_".join(part for part in (*parts[:-2], *extras, *parts[-2:]) if part)


def extra_order(name: str) -> tuple[int, str]:
    """Sort key of an extra's name: registered ones first, in their order."""
    known = tuple(EXTRA_TAGS)
    return (known.index(name), "") if name in EXTRA_TAGS else (len(known), name)


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
    tag = EXTRA_TAGS.get(name)
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


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
