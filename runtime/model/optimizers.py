"""torch's optimizers by DeepSpeed's names and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from autoconf_launch.core import ConfigError, OptimizerConfig, nearest_known

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
    return {name: _tuple(value) for name, value in config.parameters}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


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
