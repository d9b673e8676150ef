"""Layouts that cannot exist, by named rules over columns.

A rule is one function of columns. A planner counts the layouts that each one drops; a message
about a single layout finds the valid values by asking the same function.

Shapes: C = candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, Layout

from ..layers import all_layers, state_heads
from ..space import Bools, Ints
from .layout_columns import FULL, LayoutColumns

Keep: TypeAlias = Callable[[LayoutColumns, Architecture, int], Bools]
_MOST_VALUES = 4096
_MOST_EMPTY = 0.05
"""Largest part of the layers' places that uneven virtual stages may leave empty, in which ranks
wait: DeepSeek-V3's 61 layers on 64 places (github:NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek,
pp 16, 8 x 2 and 4 x 4; github:NVIDIA/Megatron-LM,
docs/api-guide/pipeline_parallel_layout.md, 16 x 2) leave 0.047."""


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """A rule that a layout must obey.

    Attributes:
        name: used in lists of rejected layouts.
        knob: the field of ``LayoutColumns`` at fault.
        flag: its spelling on a command line.
        why: problem of a value; may use ``{value}`` and fields of the model in braces.
        keep: rows of the columns that obey.
    """

    name: str
    knob: str
    flag: str
    why: str
    keep: Keep


def _divides(layers: int, pieces: Ints) -> Bools:
    return np.asarray((layers % pieces == 0) | ((layers + 2) % pieces == 0))


def can_cut(layers: int, pieces: Ints) -> Bools:
    """True if virtual stages have a layer at least, and equally many or nearly so."""
    places = -(-layers // pieces) * pieces
    is_nearly_even = (pieces <= layers) & ((1.0 - _MOST_EMPTY) * places <= layers)
    return np.asarray(_divides(layers, pieces) | is_nearly_even)


def has_even_pieces(x: LayoutColumns, a: Architecture) -> Bools:
    """True if virtual stages have equally many layers, or if embedding and head count as two."""
    return np.asarray((x.virtual_C == 1) | _divides(all_layers(a), x.pipeline_C * x.virtual_C))


def _vpp_layers(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray((x.virtual_C == 1) | can_cut(all_layers(a), x.pipeline_C * x.virtual_C))


def _some_layers(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    per_stage = -(-all_layers(a) // x.pipeline_C)
    is_full = x.recompute_C == FULL
    fits = is_full & (x.recompute_layers_C <= per_stage)
    return np.asarray((x.recompute_layers_C < 0) | fits)


RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        "tp_heads",
        "tensor_C",
        "tp",
        "does not divide {heads} heads",
        lambda x, a, sequence: a.heads % x.tensor_C == 0,
    ),
    LayoutRule(
        "tp_kv_heads",
        "tensor_C",
        "tp",
        "neither divides {kv_heads} key-value heads nor is a multiple of them",
        lambda x, a, sequence: (a.kv_heads % x.tensor_C == 0) | (x.tensor_C % a.kv_heads == 0),
    ),
    LayoutRule(
        "tp_ffn",
        "tensor_C",
        "tp",
        "does not divide the MLP's {ffn}",
        lambda x, a, _: math.gcd(a.ffn, a.experts.ffn if a.experts else a.ffn) % x.tensor_C == 0,
    ),
    LayoutRule(
        "tp_states",
        "tensor_C",
        "tp",
        "does not divide the key heads or groups of its layers with a state",
        lambda x, a, _: state_heads(a) % x.tensor_C == 0,
    ),
    LayoutRule(
        "pp_layers",
        "pipeline_C",
        "pp",
        "is more than {layers} layers",
        lambda x, a, sequence: x.pipeline_C <= all_layers(a),
    ),
    LayoutRule(
        "vpp_pp",
        "virtual_C",
        "vpp",
        "needs a pipeline, but pp is 1",
        lambda x, a, sequence: (x.virtual_C == 1) | (x.pipeline_C > 1),
    ),
    LayoutRule(
        "vpp_layers",
        "virtual_C",
        "vpp",
        "x pp={pp} leaves more than 5 % of the places of {layers} layers empty",
        _vpp_layers,
    ),
    LayoutRule(
        "vpp_micro_batches",
        "virtual_C",
        "vpp",
        "needs micro-batches in multiples of pp={pp}, but a step has {accumulation}",
        lambda x, a, sequence: (x.virtual_C == 1) | (x.accumulation_C % x.pipeline_C == 0),
    ),
    LayoutRule(
        "cp_sequence",
        "context_C",
        "cp",
        "does not split {sequence} tokens into two equal parts for each rank",
        lambda x, a, sequence: sequence % np.where(x.context_C > 1, 2 * x.context_C, 1) == 0,
    ),
    LayoutRule(
        "ep_experts",
        "expert_C",
        "ep",
        "does not divide {experts} experts",
        lambda x, a, sequence: (a.experts.count if a.experts else 1) % x.expert_C == 0,
    ),
    LayoutRule(
        "ep_ranks",
        "expert_C",
        "ep",
        "does not divide dp x cp = {ranks} ranks",
        lambda x, a, sequence: x.shards_C % x.expert_C == 0,
    ),
    LayoutRule(
        "sp_tp",
        "sequence_parallel_C",
        "sequence-parallel",
        "needs tp above 1",
        lambda x, a, sequence: ~x.sequence_parallel_C | (x.tensor_C > 1),
    ),
    LayoutRule(
        "sp_sequence",
        "tensor_C",
        "tp",
        "does not divide {sequence} tokens, which sequence-parallel needs",
        lambda x, a, sequence: (
            sequence % np.where(x.sequence_parallel_C, x.tensor_C * x.context_C, 1) == 0
        ),
    ),
    LayoutRule(
        "offload_zero",
        "zero_stage_C",
        "zero",
        "keeps weights whole, so that offload=parameters needs another stage",
        lambda x, a, sequence: ~x.are_weights_away_C | (x.zero_stage_C == 3),
    ),
    LayoutRule(
        "recompute_layers",
        "recompute_layers_C",
        "recompute-layers",
        "needs recompute=full and at most the layers of a stage",
        _some_layers,
    ),
)


def rows_obeying(columns: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Rows that break no rule."""
    kept = np.ones(np.broadcast_shapes(columns.tensor_C.shape, columns.data_C.shape), np.bool_)
    for rule in RULES:
        kept = kept & rule.keep(columns, a, sequence)
    return kept


def broken_rule(
    layout: Layout,
    columns: LayoutColumns,
    a: Architecture,
    sequence: int,
    rules: Sequence[LayoutRule] = RULES,
) -> str:
    """A sentence on the first rule that a layout breaks, with valid values; "" if none."""
    for rule in rules:
        if rule.keep(columns, a, sequence).all():
            continue
        value = int(getattr(columns, rule.knob)[0])
        subject = f"{rule.flag}={value}" if rule.knob != "sequence_parallel_C" else rule.flag
        why = rule.why.format(
            heads=a.heads,
            kv_heads=a.kv_heads,
            ffn=a.ffn,
            layers=all_layers(a),
            experts=a.experts.count if a.experts else 1,
            sequence=sequence,
            pp=layout.pipeline_parallel,
            accumulation=layout.accumulation,
            ranks=layout.data_parallel * layout.context_parallel,
        )
        return f"{subject} {why}; valid: {_valid(rule, columns, a, sequence)}"
    return ""


def _valid(rule: LayoutRule, columns: LayoutColumns, a: Architecture, sequence: int) -> str:
    """Values of the rule's knob that obey it with the layout's other values."""
    if rule.knob == "sequence_parallel_C":
        return "false, or tp of at least 2"
    first = {"zero_stage_C": 0, "recompute_layers_C": -1}.get(rule.knob, 1)
    last = 3 if rule.knob == "zero_stage_C" else _MOST_VALUES
    values = np.arange(first, last + 1)
    wide = columns.take(np.zeros(len(values), np.int64))
    changed: dict[str, Any] = {rule.knob: values}
    asked = replace(wide, **changed)
    good = [value for value in values[rule.keep(asked, a, sequence)] if value != -1]
    if len(good) > 2 and good == list(range(good[0], good[-1] + 1)):
        return f"{good[0]} to {good[-1]}"
    return " ".join(map(str, good)) or "none with these other values"
