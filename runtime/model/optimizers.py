"""Optimizers, learning-rate schedules and loss scaling, by DeepSpeed's names and parameters.

Formulas of schedules: DeepSpeed's documentation. Optimizer step n, counted from 0, runs at the
rate of iteration n (DeepSpeed repeats the first rate once, so it is one step behind).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from autoconf_launch.core import (
    ConfigError,
    OptimizerConfig,
    Precision,
    ResolvedConfig,
    SchedulerConfig,
    nearest_known,
)

DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
_PRECISIONS = {dtype: precision for precision, dtype in DTYPES.items()}
_FIRST_SCALE = 2.0**16
_GROWTH_INTERVAL = 1000
"""Good steps after which the scale doubles; both are DeepSpeed's defaults for fp16."""
MakeOptimizer: TypeAlias = Callable[[Iterable[Parameter]], Optimizer]
_SHARED = frozenset({"lr", "weight_decay", "foreach", "maximize", "capturable", "differentiable"})
_ADAM = _SHARED | {"betas", "eps", "amsgrad", "fused"}
_NAMES_ONLY = frozenset({"torch_adam", "adam_w_mode", "bias_correction", "set_grad_none"})
"""DeepSpeed's switches between its own implementations of Adam."""
_PARAMETERS = {
    "Adam": _ADAM | _NAMES_ONLY,
    "AdamW": _ADAM | _NAMES_ONLY,
    "SGD": (_SHARED - {"capturable"}) | {"momentum", "dampening", "nesterov", "fused"},
    "Adagrad": (_SHARED - {"capturable"}) | {"lr_decay", "initial_accumulator_value", "eps"},
    "RMSprop": _SHARED | {"alpha", "eps", "momentum", "centered"},
}
_RateFunction: TypeAlias = Callable[[int, float], float]
"""From an iteration and the optimizer's own rate to the rate to use."""
_WARMUP = {"warmup_num_steps": 1000, "warmup_type": "log"}
_BOUNDS = {"warmup_min_lr": 0.0, "warmup_max_lr": 0.001}


def precision_of(dtype: torch.dtype) -> Precision:
    """The format of matrix products that give out ``dtype``, as the script set up torch."""
    found = _PRECISIONS.get(dtype, Precision.FP32)
    return Precision.TF32 if found is Precision.FP32 and _allows_tf32() else found


def _allows_tf32() -> bool:
    """True if CUDA may round fp32 operands to TF32.

    Torch 2.9 and later have its own word for it, and refuse to answer in the older one after
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
    """The factor on the loss that keeps small fp16 gradients from vanishing; 1 if not needed.

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


def optimizer_maker(config: OptimizerConfig | None) -> MakeOptimizer:
    """A function from parameters to the optimizer that a configuration asks for.

    DeepSpeed's ``Adam`` decays weights as AdamW does unless ``adam_w_mode`` is false, and its
    ``weight_decay`` is 0 unless given (torch's AdamW: 0.01, kept with ``torch_adam``).

    Raises:
        ConfigError: there is no optimizer, or a parameter is unknown or refused by torch.
    """
    if config is None:
        raise ConfigError(
            'the configuration has no optimizer; add "optimizer": {"type": "AdamW", "params": '
            '{"lr": 1e-4}} or pass optimizer= to initialize.'
        )
    kind, arguments = _torch_class(config.kind, _checked_parameters(config))

    def make(parameters: Iterable[Parameter]) -> Optimizer:
        try:
            return kind(list(parameters), **arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer {config.kind}: {error}.") from error

    return make


def _checked_parameters(config: OptimizerConfig) -> dict[str, Any]:
    known = _PARAMETERS[config.kind]
    for name, value in config.parameters:
        if name not in known:
            raise ConfigError(f"optimizer.params.{name} is unknown; {nearest_known(name, known)}")
        if value == "auto":
            raise ConfigError(
                f'optimizer.params.{name} is "auto", but a launch needs a value; start the '
                "script with autoconf-launch, which resolves it."
            )
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.parameters
    }


def _torch_class(kind: str, given: dict[str, Any]) -> tuple[Callable[..., Optimizer], Any]:
    if kind not in ("Adam", "AdamW"):
        return getattr(torch.optim, kind), given
    if given.pop("bias_correction", True) is not True:
        raise ConfigError(
            "optimizer.params.bias_correction must be true, as torch's Adam always corrects; "
            "remove it."
        )
    given.pop("set_grad_none", None)
    decoupled = given.pop("adam_w_mode", True) or kind == "AdamW"
    if not given.pop("torch_adam", False):
        given.setdefault("weight_decay", 0.0)
    return (torch.optim.AdamW if decoupled else torch.optim.Adam), given


def base_learning_rate(optimizers: Iterable[Optimizer]) -> float | None:
    """The highest learning rate of all groups, before a schedule changes it; None without one."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    rates = [group.get("initial_lr", group.get("lr")) for group in groups]
    return max((float(rate) for rate in rates if rate is not None), default=None)


class Schedule:
    """Sets an optimizer's rate for the step to come."""

    def __init__(self, optimizer: Optimizer, rate: _RateFunction) -> None:
        self._optimizer = optimizer
        self._rate = rate
        self._own_rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._iteration = -1
        self.advance()

    @property
    def iteration(self) -> int:
        """The optimizer step to come, from 0."""
        return self._iteration

    def go_to(self, iteration: int) -> None:
        self._iteration = iteration - 1
        self.advance()

    def advance(self) -> None:
        self._iteration += 1
        for group, own in zip(self._optimizer.param_groups, self._own_rates, strict=True):
            group["lr"] = self._rate(self._iteration, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Progress of a warm-up: 0 at its start, 1 from its end on."""

    steps: int
    kind: str = "log"

    def progress(self, iteration: int) -> float:
        """Linear in the iteration, or in its logarithm."""
        if iteration >= self.steps:
            return 1.0
        if self.kind == "linear":
            return iteration / self.steps
        return math.log(iteration + 1) / math.log(max(2, self.steps))


def build_schedule(config: SchedulerConfig | None, optimizer: Optimizer) -> Schedule | None:
    """The schedule that a configuration asks for.

    Raises:
        ConfigError: a parameter is unknown, missing or of a wrong kind.
    """
    if config is None:
        return None
    return Schedule(optimizer, rate_of(config))


def rate_of(config: SchedulerConfig) -> _RateFunction:
    """The rule of a schedule only; see :func:`build_schedule`."""
    make, known = _KINDS[config.kind]
    for name, value in config.parameters:
        if name not in known:
            raise ConfigError(f"scheduler.params.{name} is unknown; {nearest_known(name, known)}")
        _check(name, value)
    given = {**known, **dict(config.parameters)}
    if given.get("total_num_steps", 0) is None:
        raise ConfigError(f"scheduler.params.total_num_steps is missing; {config.kind} needs it.")
    return make(given)


def _check(name: str, value: Any) -> None:
    if name == "warmup_type":
        if value not in ("log", "linear"):
            raise ConfigError(f'scheduler.params.{name} is {value!r}; use "log" or "linear".')
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ConfigError(
            f"scheduler.params.{name} is {value!r}, but must be a number of at least 0."
        )


def _warmup(given: dict[str, Any]) -> Warmup:
    return Warmup(steps=int(given["warmup_num_steps"]), kind=given["warmup_type"])


def _warmup_lr(given: dict[str, Any]) -> _RateFunction:
    least, most, warmup = given["warmup_min_lr"], given["warmup_max_lr"], _warmup(given)
    return lambda iteration, _: least + (most - least) * warmup.progress(iteration)


def _warmup_decay_lr(given: dict[str, Any]) -> _RateFunction:
    least, most, warmup = given["warmup_min_lr"], given["warmup_max_lr"], _warmup(given)
    total = int(given["total_num_steps"])

    def rate(iteration: int, _: float) -> float:
        if iteration < warmup.steps:
            return float(least + (most - least) * warmup.progress(iteration))
        left = max(0.0, (total - iteration) / max(1, total - warmup.steps))
        return float(least + (most - least) * left)

    return rate


def _warmup_cosine_lr(given: dict[str, Any]) -> _RateFunction:
    first, last, warmup = given["warmup_min_ratio"], given["cos_min_ratio"], _warmup(given)
    decay_steps = max(1, int(given["total_num_steps"]) - warmup.steps)

    def rate(iteration: int, own: float) -> float:
        if iteration < warmup.steps:
            return float(own * (first + (1 - first) * warmup.progress(iteration)))
        done = min(1.0, (iteration - warmup.steps + 1) / decay_steps)
        return float(own * (last + (1 - last) * (1 + math.cos(math.pi * done)) / 2))

    return rate


_KINDS: dict[str, tuple[Callable[[dict[str, Any]], _RateFunction], dict[str, Any]]] = {
    "WarmupLR": (_warmup_lr, {**_WARMUP, **_BOUNDS}),
    "WarmupDecayLR": (_warmup_decay_lr, {**_WARMUP, **_BOUNDS, "total_num_steps": None}),
    "WarmupCosineLR": (
        _warmup_cosine_lr,
        {**_WARMUP, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0001, "total_num_steps": None},
    ),
}
