"""Bytes that a micro-batch holds until its backward pass. Not: weights and their state.

The profile run looks at the bare model, so what was traced or measured is without recomputation;
rows that recompute are scaled by the ratio that the blocks give.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import BlockSpec, ModelSpec, Recompute

from .line import Line, fit

_NOTHING = Line(0.0, 0.0)
_KEPT_BY_SELECTIVE = 20 / 34
"""Of a transformer block's activations, those of its matrix products: Korthikanti et al. 2022,
"Reducing Activation Recomputation", section 4.1, 34 sbh in all and 20 sbh kept (16-bit)."""


def activation_line(
    spec: ModelSpec, *, rest_bytes: float, gradient_bytes: float, logits: Line
) -> Line:
    """Bytes at the fullest moment without recomputation, over the samples of a micro-batch.

    Traced peaks weigh more than measured bytes, those more than the sum over blocks; NaN where
    none of them is known. The fixed part is what no sample takes, such as weights that autocast
    has cast.

    Args:
        spec: the model.
        rest_bytes: weights and optimizer state of the unsharded model, which traced peaks
            include.
        gradient_bytes: its gradients, which the phases after "forward" include too.
        logits: what is counted apart, and is in the peaks of these phases.
    """
    if spec.traced_peaks:
        lines = [
            _beyond(_phase(spec, phase), rest_bytes)
            if phase == "forward"
            else _beyond(_phase(spec, phase), rest_bytes + gradient_bytes, logits)
            for phase in dict.fromkeys(peak.phase for peak in spec.traced_peaks)
        ]
        return Line(max(line.fixed for line in lines), max(line.each for line in lines))
    measured = [(t.micro_batch, float(t.activation_bytes)) for t in spec.timings]
    if any(seen for _, seen in measured):
        return fit(measured)
    return Line(0.0, spec.activation_bytes_per_sample or np.nan)


def recompute_factor(kind: Recompute, spec: ModelSpec, compute_bytes: int) -> float:
    """Activations under ``kind`` over those without recomputation; NaN where blocks do not say.

    One block at a time is whole again while its backward pass runs.
    """
    if kind is Recompute.NONE:
        return 1.0
    if not spec.activation_bytes_per_sample:
        return float(np.nan)
    kept = [block.count * _kept(block, kind, compute_bytes) for block in spec.blocks]
    again = [b.activation_bytes - _kept(b, kind, compute_bytes) for b in spec.blocks]
    return float(sum(kept) + max(again)) / spec.activation_bytes_per_sample


def _phase(spec: ModelSpec, phase: str) -> Line:
    return fit(
        [(p.micro_batch, float(p.peak_bytes)) for p in spec.traced_peaks if p.phase == phase]
    )


def _beyond(line: Line, fixed: float, apart: Line = _NOTHING) -> Line:
    return Line(max(0.0, line.fixed - fixed), max(0.0, line.each - apart.each))


def _kept(block: BlockSpec, kind: Recompute, compute_bytes: int) -> float:
    """Only repeated blocks recompute; embedding and head keep what they have."""
    if block.count == 1 or not block.activation_bytes:
        return block.activation_bytes
    if kind is Recompute.FULL:
        return block.input_bytes or np.nan
    if block.gemm_shapes is None:
        return _KEPT_BY_SELECTIVE * block.activation_bytes
    outputs = sum(shape.m * shape.n * shape.count for shape in block.gemm_shapes)
    return min(block.activation_bytes, block.input_bytes + outputs * compute_bytes)
