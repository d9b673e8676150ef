"""Layouts that our runtime runs, as named rules over columns.

Not: whether it trains with a precision, an optimizer or adapters.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Architecture, Offload

from ..cost import ALL_LAYERS, OFFLOAD_CODES, LayoutColumns, LayoutRule
from ..space import Bools, Ints


def _allows(degree_C: Ints, model_allows: bool) -> Bools:
    """Rows without a kind of parallelism, and all rows if the model allows it."""
    return np.asarray((degree_C == 1) | model_allows)


def _offload(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.offload_C == OFFLOAD_CODES[Offload.NONE])


def _tensor(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Decoders with rotary positions have a plan in transformers."""
    has_plan = a.causal and not a.positions and not a.encoder_layers and a.latent is None
    has_heads_C = np.asarray(a.kv_heads % x.tensor_C == 0)
    return np.asarray(_allows(x.tensor_C, has_plan) & has_heads_C)


def _pipeline(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """An encoder-decoder hands more than one hidden state from block to block."""
    return _allows(x.pipeline_C, not a.encoder_layers)


def _virtual(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.pipeline_C * x.virtual_C <= a.layers)


def _context(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return _allows(x.context_C, a.causal and not a.encoder_layers)


def _expert(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return _allows(x.expert_C, a.experts is not None)


def _expert_ranks(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.data_C % x.expert_C == 0)


def _stage_micro_batches(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray(x.accumulation_C >= x.pipeline_C)


def _recompute_layers(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray((x.recompute_layers_C == ALL_LAYERS) | (x.virtual_C == 1))


RUNTIME_RULES = (
    LayoutRule("runtime_offload", "offload_C", "offload", "does not run here", _offload),
    LayoutRule("runtime_tensor", "tensor_C", "tp", "does not run here", _tensor),
    LayoutRule("runtime_pipeline", "pipeline_C", "pp", "does not run here", _pipeline),
    LayoutRule("runtime_virtual", "virtual_C", "vpp", "does not run here", _virtual),
    LayoutRule("runtime_context", "context_C", "cp", "does not run here", _context),
    LayoutRule("runtime_expert", "expert_C", "ep", "does not run here", _expert),
    LayoutRule("expert_ranks", "expert_C", "ep", "does not divide dp", _expert_ranks),
    LayoutRule(
        "stage_micro_batches",
        "accumulation_C",
        "accumulation",
        "is less than pp",
        _stage_micro_batches,
    ),
    LayoutRule(
        "runtime_layers",
        "recompute_layers_C",
        "recompute-layers",
        "does not run here",
        _recompute_layers,
    ),
)
"""In the order of their application; the first broken rule names the reason."""


def plan_only_by(x: LayoutColumns, a: Architecture, sequence: int) -> list[str | None]:
    """Name of the first rule that each layout breaks; None: it runs."""
    breaks_RC = [~np.broadcast_to(rule.keep(x, a, sequence), len(x)) for rule in RUNTIME_RULES]
    first_C = np.argmax([*breaks_RC, np.ones(len(x), np.bool_)], axis=0)
    names = (*(rule.name for rule in RUNTIME_RULES), None)
    return [names[first] for first in first_C.tolist()]
