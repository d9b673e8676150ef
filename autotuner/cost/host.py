"""What the host needs to launch the kernels of a layer, and how that meets the device's time.

Shapes: U = distinct inner layouts.
"""

from __future__ import annotations

import numpy as np

from ..space import Floats
from .hardware import Physics
from .layer import LayerTimes
from .layout_columns import FULL, InnerLayouts, Stack
from .software import is_compiled


def together(host: Floats, device: Floats, sharpness: float) -> Floats:
    """Host and device run side by side; near equality each one waits for the other at times."""
    larger, smaller = np.maximum(host, device), np.minimum(host, device)
    return np.asarray(larger * (1.0 + (smaller / larger) ** sharpness) ** (1.0 / sharpness))


def host_s(stack: Stack, inner: InnerLayouts, physics: Physics, times: LayerTimes) -> Floats:
    """What the host needs to launch a layer, whatever its size."""
    launches = 1.0 + _ATTENTION_LAUNCHES * (stack.attentions - 1)
    softmax = physics.unfused_softmax_s * times.unfused_U * stack.attentions
    sums = (1.0 + stack.attentions) * physics.collective_launch_s * np.log2(inner.tensor_U)
    forward = launches * physics.layer_forward_s + softmax + sums
    backward = launches * (physics.layer_backward_s - physics.layer_forward_s)
    whole = 2.0 * forward + backward
    is_plain = stack.workload.software.plain_torch
    again = np.where(inner.recompute_U == FULL, _REPEATED * whole if is_plain else forward, 0.0)
    compiled = is_compiled(stack.workload.software)
    return np.asarray((whole + again) * (physics.layer_compiled if compiled else 1.0))


_ATTENTION_LAUNCHES = 2 / 3
"""Part of a layer's kernels that are its attention's: a norm, projections, transposes, scores,
softmax, dropout, values and the sum with the residual, about twice as many as the MLP's."""
_REPEATED = 0.6
"""Operations that ``torch.utils.checkpoint`` runs again over those of a layer without it, views
among them: 85 of 142, counted in a GPT-2 under autocast."""
