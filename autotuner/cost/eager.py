"""Seconds of traced operations on a GPU, a kernel for each. Not: layouts, nor what is compiled.

A matrix product is known here by its FLOPs alone, so it is taken for one of equal sides, or for
as long as its bytes need, whichever is longer. Shapes: O = operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoconf_launch.core.first_forward import OperationCost

from .model.kernels import Kernels

EAGER_BAND = 0.5
"""Relative error to expect of a step's seconds; a guess: no table has such models."""
_OPERATIONS_OF_LAYER = 130
"""Of forward and backward of one layer of a Llama by transformers, as a trace counts them; what
the host needs for a layer is spread over them."""
_MOMENTS = 2
"""An update reads and writes each value of its state, and the weight; it reads the gradient."""


def forward_backward_s(
    operations: Sequence[OperationCost], kernels: Kernels, *, share: float
) -> float:
    """Seconds of one micro-batch; host and device run side by side.

    Args:
        operations: of forward and backward of the micro-batch that was traced.
        kernels: of the GPU in the precision asked for.
        share: samples over those that were traced.
    """
    if not operations:
        return float("nan")
    flops_O = np.array([one.flops for one in operations]) * share
    moved_O = np.array([float(one.moved_bytes) for one in operations]) * share
    count_O = np.array([float(one.count) for one in operations])
    side_O = np.cbrt(np.maximum(flops_O, 2.0) / 2.0)
    product_s_O = np.where(flops_O > 0, kernels.product_s(side_O, side_O, side_O), 0.0)
    device_s = float(count_O @ np.maximum(product_s_O, kernels.traffic_s(moved_O)))
    physics = kernels.physics
    each_s = (physics.layer_forward_s + physics.layer_backward_s) / _OPERATIONS_OF_LAYER
    host_s = float(count_O.sum()) * each_s
    power = physics.host_sharpness
    return float((device_s**power + host_s**power) ** (1.0 / power))


def update_s(weight_bytes: float, states: int, kernels: Kernels) -> float:
    """Seconds of the optimizer's step on weights of so many bytes."""
    passes = _MOMENTS * (1 + states) + 1
    return weight_bytes * passes / kernels.bytes_per_s
