"""Layouts that cannot exist, by named rules over columns. Not: what fits, nor what is fast.

A rule is one function of columns. A planner counts what each one drops; a message about a single
layout finds the valid values by asking the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, Layout, Offload, Recompute

from ..table import Bools
from .memory_layouts import OFFLOAD_CODES, RECOMPUTE_CODES, MemoryLayouts

Keep: TypeAlias = Callable[[MemoryLayouts, Architecture, int], Bools]
_MOST_VALUES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule:
    """What a layout must obey.

    Attributes:
        name: stands in lists of what was rejected.
        knob: the field of ``MemoryLayouts`` that is to blame.
        flag: how a command line writes it.
        why: what is wrong with a value; ``{value}`` and fields of the model stand in braces.
        keep: rows of the columns that obey.
    """

    name: str
    knob: str
    flag: str
    why: str
    keep: Keep


def _layers(a: Architecture) -> int:
    return a.layers + a.encoder_layers


def _tp_heads(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray(a.heads % x.tensor_C == 0)


def _tp_kv_heads(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray((a.kv_heads % x.tensor_C == 0) | (x.tensor_C % a.kv_heads == 0))


def _tp_ffn(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    ffn = np.gcd(a.ffn, a.experts.ffn) if a.experts else a.ffn
    return np.asarray(ffn % x.tensor_C == 0)


def _pp_layers(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.pipeline_C <= _layers(a))


def _vpp_pp(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray((x.virtual_C == 1) | (x.pipeline_C > 1))


def _vpp_layers(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    divides = _layers(a) % (x.pipeline_C * x.virtual_C) == 0
    balanced = (_layers(a) + 2) % (x.pipeline_C * x.virtual_C) == 0
    return np.asarray((x.virtual_C == 1) | divides | balanced)


def _vpp_micro_batches(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray((x.virtual_C == 1) | (x.accumulation_C % x.pipeline_C == 0))


def _cp_sequence(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    parts = np.where(x.context_C > 1, 2 * x.context_C, 1)
    return np.asarray(sequence % parts == 0)


def _ep_experts(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray((a.experts.count if a.experts else 1) % x.expert_C == 0)


def _ep_ranks(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.data_C * x.context_C % x.expert_C == 0)


def _sp_tp(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    return np.asarray(~x.sequence_parallel_C | (x.tensor_C > 1))


def _sp_sequence(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    parts = np.where(x.sequence_parallel_C, x.tensor_C * x.context_C, 1)
    return np.asarray(sequence % parts == 0)


def _offload(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    away = x.offload_C == OFFLOAD_CODES[Offload.PARAMETERS]
    return np.asarray(~away | (x.zero_stage_C == 3))


def _some_layers(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    per_stage = -(-_layers(a) // x.pipeline_C)
    is_full = x.recompute_C == RECOMPUTE_CODES[Recompute.FULL]
    fits = is_full & (x.recompute_layers_C <= per_stage)
    return np.asarray((x.recompute_layers_C < 0) | fits)


def _rule(name: str, knob: str, flag: str, why: str, keep: Keep) -> LayoutRule:
    return LayoutRule(name=name, knob=knob, flag=flag, why=why, keep=keep)


RULES = (
    _rule("tp_heads", "tensor_C", "tp", "does not divide {heads} heads", _tp_heads),
    _rule(
        "tp_kv_heads",
        "tensor_C",
        "tp",
        "neither divides {kv_heads} key-value heads nor is a multiple of them",
        _tp_kv_heads,
    ),
    _rule("tp_ffn", "tensor_C", "tp", "does not divide the perceptron's {ffn}", _tp_ffn),
    _rule("pp_layers", "pipeline_C", "pp", "is more than {layers} layers", _pp_layers),
    _rule("vpp_pp", "virtual_C", "vpp", "needs a pipeline, but pp is 1", _vpp_pp),
    _rule(
        "vpp_layers",
        "virtual_C",
        "vpp",
        "x pp={pp} does not divide {layers} layers (nor with embedding and head as two more)",
        _vpp_layers,
    ),
    _rule(
        "vpp_micro_batches",
        "virtual_C",
        "vpp",
        "needs micro-batches in multiples of pp={pp}, but a step has {accumulation}",
        _vpp_micro_batches,
    ),
    _rule(
        "cp_sequence",
        "context_C",
        "cp",
        "does not cut {sequence} tokens into two equal parts for each rank",
        _cp_sequence,
    ),
    _rule("ep_experts", "expert_C", "ep", "does not divide {experts} experts", _ep_experts),
    _rule("ep_ranks", "expert_C", "ep", "does not divide dp x cp = {ranks} ranks", _ep_ranks),
    _rule(
        "sp_tp",
        "sequence_parallel_C",
        "sequence-parallel",
        "needs tp above 1",
        _sp_tp,
    ),
    _rule(
        "sp_sequence",
        "tensor_C",
        "tp",
        "does not divide {sequence} tokens, which sequence-parallel needs",
        _sp_sequence,
    ),
    _rule(
        "offload_zero",
        "zero_stage_C",
        "zero",
        "keeps weights whole, so that offload=parameters needs another stage",
        _offload,
    ),
    _rule(
        "recompute_layers",
        "recompute_layers_C",
        "recompute-layers",
        "needs recompute=full and at most the layers of a stage",
        _some_layers,
    ),
)


def obeying(columns: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    """Rows that break no rule."""
    kept = np.ones(np.broadcast_shapes(columns.tensor_C.shape, columns.data_C.shape), np.bool_)
    for rule in RULES:
        kept = kept & rule.keep(columns, a, sequence)
    return kept


def broken_rule(layout: Layout, columns: MemoryLayouts, a: Architecture, sequence: int) -> str:
    """One sentence on the first rule that a layout breaks, with valid values; "" if none.

    Args:
        layout: the layout.
        columns: the same as one row.
        a: the model.
        sequence: tokens of a sample.
    """
    for rule in RULES:
        if rule.keep(columns, a, sequence).all():
            continue
        value = int(getattr(columns, rule.knob)[0])
        subject = f"{rule.flag}={value}" if rule.knob != "sequence_parallel_C" else rule.flag
        why = rule.why.format(
            heads=a.heads,
            kv_heads=a.kv_heads,
            ffn=a.ffn,
            layers=_layers(a),
            experts=a.experts.count if a.experts else 1,
            sequence=sequence,
            pp=layout.pipeline_parallel,
            accumulation=layout.accumulation,
            ranks=layout.data_parallel * layout.context_parallel,
        )
        return f"{subject} {why}; valid: {_valid(rule, columns, a, sequence)}"
    return ""


def _valid(rule: LayoutRule, columns: MemoryLayouts, a: Architecture, sequence: int) -> str:
    """Values of the rule's knob that obey it beside the others of the layout."""
    if rule.knob == "sequence_parallel_C":
        return "false, or tp of at least 2"
    first = {"zero_stage_C": 0, "recompute_layers_C": -1}.get(rule.knob, 1)
    last = 3 if rule.knob == "zero_stage_C" else _MOST_VALUES
    values = np.arange(first, last + 1)
    wide = MemoryLayouts(
        **{f.name: np.repeat(getattr(columns, f.name), len(values)) for f in fields(columns)}
    )
    changed: dict[str, Any] = {rule.knob: values}
    asked = replace(wide, **changed)
    good = [value for value in values[rule.keep(asked, a, sequence)] if value != -1]
    if len(good) > 2 and good == list(range(good[0], good[-1] + 1)):
        return f"{good[0]} to {good[-1]}"
    return " ".join(map(str, good)) or "none with these other values"
