"""The number format of forward and backward, and loss scaling for fp16. Weights stay fp32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from autoconf_launch.core import Precision, ResolvedConfig

DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
_PRECISIONS = {dtype: precision for precision, dtype in DTYPES.items()}
_FIRST_SCALE = 2.0**16
_GROWTH_INTERVAL = 1000
"""Good steps after which the scale doubles; both are DeepSpeed's defaults for fp16."""


def precision_of(dtype: torch.dtype) -> Precision:
    """The format of matrix products that give out ``dtype``, as the script set up torch."""
    found = _PRECISIONS.get(dtype, Precision.FP32)
    return Precision.TF32 if found is Precision.FP32 and _allows_tf32() else found


def _allows_tf32() -> bool:
    """True if CUDA may round fp32 operands to TF32.

    Torch 2.9 and later have a word of its own for it, and refuse to answer in the older one after
    a script used the new one.
    """
    matmul = torch.backends.cuda.matmul
    newer = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if newer is None else newer == "tf32"


def compute_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass and the loss."""
    if precision is Precision.FP32:
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


class LossScale:
    """The factor on the loss that keeps small fp16 gradients from vanishing; 1 where not needed.

    A dynamic scale halves after a step with infinite gradients, which is then skipped, and
    doubles after 1000 good ones. It is decided by the global norm, so all ranks agree.
    """

    def __init__(self, config: ResolvedConfig) -> None:
        fp16 = config.precision is Precision.FP16
        self._dynamic = fp16 and config.loss_scale == 0.0
        self.value = (config.loss_scale or _FIRST_SCALE) if fp16 else 1.0
        self.active = fp16
        self.good_steps = 0

    def admits(self, gradient_norm: Tensor) -> bool:
        """True if the step may be taken; adapts the scale. Waits for the device."""
        finite = bool(torch.isfinite(gradient_norm))
        if self._dynamic:
            self._adapt(finite)
        return finite

    def _adapt(self, finite: bool) -> None:
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2.0, 1.0)
        elif self.good_steps % _GROWTH_INTERVAL == 0:
            self.value *= 2.0
