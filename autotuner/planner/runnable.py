"""Layouts that our runtime runs, as named rules over columns.

Not: whether it trains with a precision, an optimizer or adapters.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Architecture

from ..cost import ALL_LAYERS, Keep, LayoutColumns, LayoutRule
from ..space import Bools


def _rule(
    name: str, knob: str, flag: str, keep: Keep, why: str = "does not run here"
) -> LayoutRule:
    return LayoutRule(name, knob, flag, why, keep)


def _tensor(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Decoders with rotary positions have a plan in transformers."""
    has_plan = a.causal and not a.positions and not a.encoder_layers and a.latent is None
    has_plan = has_plan and not a.kinds and a.front is None
    return np.asarray(((x.tensor_C == 1) | has_plan) & (a.kv_heads % x.tensor_C == 0))


RUNTIME_RULES = (
    _rule(
        "runtime_offload",
        "offload_C",
        "offload",
        lambda x, a, _: ~x.are_states_away_C,
    ),
    _rule(
        "runtime_activations",
        "offload_C",
        "offload",
        lambda x, a, _: ~x.are_activations_away_C,
    ),
    _rule("runtime_tensor", "tensor_C", "tp", _tensor),
    # an encoder-decoder passes more than one hidden state from block to block
    _rule(
        "runtime_pipeline",
        "pipeline_C",
        "pp",
        lambda x, a, _: (x.pipeline_C == 1) | (not a.encoder_layers),
    ),
    _rule(
        "runtime_virtual",
        "virtual_C",
        "vpp",
        lambda x, a, _: x.pipeline_C * x.virtual_C <= a.layers,
    ),
    _rule(
        "runtime_context",
        "context_C",
        "cp",
        lambda x, a, _: (x.context_C == 1) | (a.causal and not a.encoder_layers),
    ),
    _rule(
        "runtime_expert",
        "expert_C",
        "ep",
        lambda x, a, _: (x.expert_C == 1) | (a.experts is not None),
    ),
    _rule(
        "expert_ranks",
        "expert_C",
        "ep",
        lambda x, a, _: x.data_C % x.expert_C == 0,
        "does not divide dp",
    ),
    _rule(
        "stage_micro_batches",
        "accumulation_C",
        "accumulation",
        lambda x, a, _: x.accumulation_C >= x.pipeline_C,
        "is less than pp",
    ),
    _rule(
        "runtime_layers",
        "recompute_layers_C",
        "recompute-layers",
        lambda x, a, _: (x.recompute_layers_C == ALL_LAYERS) | (x.virtual_C == 1),
    ),
)
"""In the order of their application; the first broken rule names the reason."""


def plan_only_by(x: LayoutColumns, a: Architecture, sequence: int) -> list[str | None]:
    """Name of the first rule that each layout breaks; None: it runs."""
    breaks_RC = [~np.broadcast_to(rule.keep(x, a, sequence), len(x)) for rule in RUNTIME_RULES]
    first_C = np.argmax([*breaks_RC, np.ones(len(x), np.bool_)], axis=0)
    names = (*(rule.name for rule in RUNTIME_RULES), None)
    return [names[first] for first in first_C.tolist()]
