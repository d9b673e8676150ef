"""Lets a script that asks for CUDA by name run on the CPU up to its first pass.

No GPU is shown to such a process. What asks whether there is one hears the truth; what goes to
"cuda" without asking goes to the CPU, autocast and NCCL as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..redirect import change_after_import

_CUDA = re.compile(r"cuda(:\d+)?")
_CPU = torch.device("cpu")
_SAME = (Tensor.cuda, Tensor.pin_memory)
_WITHOUT_EFFECT = ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats")


def run_on_cpu() -> None:
    """Do so from here on, in this thread, if there is no GPU."""
    if torch.cuda.is_available():
        return
    OnCpu().__enter__()  # type: ignore[no-untyped-call]
    change_after_import({"transformers.training_args": _grant_formats})
    cuda: Any = torch.cuda
    for name in _WITHOUT_EFFECT:
        setattr(cuda, name, lambda *_, **__: None)
    cuda.current_device = lambda: 0
    autocast: Any = torch.amp.autocast_mode.autocast
    autocast.__init__ = _cast_on_cpu(autocast.__init__)
    if dist.is_available():
        dist.init_process_group = _with_gloo(dist.init_process_group)
        replicas: Any = torch.nn.parallel.DistributedDataParallel
        replicas.__init__ = _without_devices(replicas.__init__)


class OnCpu(TorchFunctionMode):
    """Puts the CPU in the place of each device that is called ``cuda``."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call with other devices, or give back what is there already."""
        if func in _SAME:
            return args[0]
        named = {name: _device(value) for name, value in (kwargs or {}).items()}
        return func(*(_device(value) for value in args), **named)


def _grant_formats(arguments: ModuleType) -> None:
    """Let ``--tf32`` and ``--bf16`` pass, which are refused without a GPU: it trains on one."""
    for name in ("is_torch_tf32_available", "is_torch_bf16_gpu_available"):
        if hasattr(arguments, name):
            setattr(arguments, name, lambda: True)


def _device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and _CUDA.fullmatch(value) else value


def _cast_on_cpu(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def __init__(self: Any, device_type: str, *arguments: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type = "cpu"
            if not arguments and named.get("dtype") is None:
                named["dtype"] = torch.float16  # what CUDA takes where nothing is said
        original(self, device_type, *arguments, **named)

    return __init__


def _with_gloo(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        named.pop("device_id", None)
        original("gloo" if "nccl" in (backend or "") else backend, *arguments, **named)

    return init_process_group


def _without_devices(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def __init__(self: Any, module: Any, *_: Any, **named: Any) -> None:
        kept = {name: value for name, value in named.items() if name not in _PLACES}
        original(self, module, **kept)

    return __init__


_PLACES = ("device_ids", "output_device")
