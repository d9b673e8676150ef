"""Lets code that asks for CUDA by name run on the CPU: a script's first pass, or a trace.

What goes to "cuda" goes to the CPU, autocast, dropout and attention (by CUDA's rules) and NCCL as
well. A whole process (``run_on_cpu``) sees no GPU either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import SUPPORTED_NODES, tree_map

_IN_FP32 = (
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "group_norm",
    "cosine_similarity",
    "dist",
    "renorm",
    "logsumexp",
)
"""Floating inputs become fp32."""
_TO_FP32 = (
    "softmax.int",
    "log_softmax.int",
    "cumsum",
    "linalg_vector_norm",
    "sum",
    "sum.dim_IntList",
)
"""The result is fp32 unless another type is requested."""
_HALVES = (torch.float16, torch.bfloat16)
_CUDA = re.compile(r"cuda(:\d+)?")
_CPU = torch.device("cpu")
_SAME = (Tensor.cuda, Tensor.pin_memory)
_KEPT: list[torch.library.Library] = []  # rules end with their library
_GROUPED = tuple(
    getattr(home, name)
    for home, name in ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm"))
    if hasattr(home, name)
)
Follow: TypeAlias = Callable[[Any, Any, Any], None]
_WITHOUT_EFFECT = ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats")
_PLACES = ("device_ids", "output_device")


def run_on_cpu(follow: Follow | None = None) -> None:
    """Run this process on the CPU from here on, also if the script makes a GPU visible.

    ``follow`` gets each function of torch with its arguments and its result.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        os.environ[name] = ""
    OnCpu(follow).__enter__()  # type: ignore[no-untyped-call]
    cuda: Any = torch.cuda
    for name in _WITHOUT_EFFECT:
        setattr(cuda, name, lambda *_, **__: None)
    cuda.current_device = cuda.device_count = lambda: 0
    cuda.is_available = lambda: False
    autocast: Any = torch.amp.autocast_mode.autocast
    autocast.__init__ = _cast_on_cpu(autocast.__init__)
    _KEPT.append(use_cuda_rules())
    if dist.is_available():
        dist.init_process_group = _with_gloo(dist.init_process_group)
        replicas: Any = torch.nn.parallel.DistributedDataParallel
        replicas.__init__ = _without_devices(replicas.__init__)


@contextmanager
def cuda_as_cpu() -> Iterator[None]:
    """While active, this thread runs on the CPU whatever it sends to CUDA."""
    autocast: Any = torch.amp.autocast_mode.autocast
    original = autocast.__init__
    autocast.__init__ = _cast_on_cpu(original)
    rules = use_cuda_rules()
    try:
        with OnCpu():
            yield
    finally:
        rules._destroy()  # type: ignore[no-untyped-call]
        autocast.__init__ = original


class OnCpu(TorchFunctionMode):
    """Puts the CPU in the place of each device that is called ``cuda``."""

    def __init__(self, follow: Follow | None = None) -> None:
        super().__init__()
        self._follow = follow

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call on the CPU instead; ``follow`` gets the arguments and the result."""
        result = self._call(func, args, kwargs or {})
        if self._follow is not None:
            self._follow(func, (args, kwargs), result)
        return result

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if any(map(_may_be_cuda, args)) or any(map(_may_be_cuda, kwargs.values())):
            args, kwargs = tree_map(_on_cpu, (args, kwargs))
        if func in _SAME:
            return args[0]
        if func in _GROUPED and isinstance(args[1], FakeTensor):
            return _product_of_groups(*args, **kwargs)
        return func(*args, **kwargs)


def _may_be_cuda(value: Any) -> bool:
    """True if the value, or one inside it, is on CUDA or names it; quicker than a replacement."""
    if isinstance(value, Tensor):
        return bool(value.is_cuda)
    if isinstance(value, list | tuple):
        return any(map(_may_be_cuda, value))
    return isinstance(value, torch.device | str) or type(value) in SUPPORTED_NODES


def _on_cpu(value: Any) -> Any:
    """A replacement on the CPU: uninitialized for a tensor on CUDA, fake in a fake mode."""
    if isinstance(value, Tensor) and value.is_cuda:
        shape, stride = value.shape, value.stride()
        return torch.empty_strided(
            shape, stride, dtype=value.dtype, device=_CPU, requires_grad=value.requires_grad
        )
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and _CUDA.fullmatch(value) else value


def _product_of_groups(rows: Tensor, weights: Tensor, *arguments: Any, **named: Any) -> Tensor:
    """A product of each expert's rows by shape, as the rows of one expert.

    torch's own shape rule knows only 16 bits, though its products take others; autocast does not
    cast them.
    """
    with torch.autocast("cpu", enabled=False):
        return rows @ weights[0]


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


def use_cuda_rules() -> torch.library.Library:
    """Apply CUDA's rules of autocast, dropout and attention until ``_destroy`` of the answer.

    The CPU's autocast leaves more in 16 bits; its dropout keeps a mask in the input's format, and
    its attention keeps scores that are dropped or have a learned bias.

    Source:
        PyTorch, aten/src/ATen/autocast_mode.h: ``AT_FORALL_FP32`` and
        ``AT_FORALL_FP32_SET_OPT_DTYPE``, less losses and rare functions;
        aten/src/ATen/native/Dropout.cpp: a fused kernel on CUDA, whose mask has a byte a value.
    """
    rules = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for names, rule in ((_IN_FP32, _with_inputs), (_TO_FP32, _with_result)):
        for name in names:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                made = rule(_operation(name))
                rules.impl(name, made, "AutocastCPU")  # type: ignore[no-untyped-call]
    rules.impl("dropout", _drop, "AutogradCPU")  # type: ignore[no-untyped-call]
    rules.impl("scaled_dot_product_attention", _attend, "AutogradCPU")  # type: ignore[no-untyped-call]
    return rules


def _drop(given: Tensor, p: float, train: bool) -> Tensor:
    """Dropout by the fused kernel if CUDA has it."""
    if train and 0.0 < p < 1.0 and given.numel():
        return torch.native_dropout(given, p, train)[0]
    return _of_all_devices("dropout", given, p, train)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *arguments: Any,
    **named: Any,
) -> Tensor:
    """Attention that keeps no scores: CUDA's kernels also take dropout and a learned bias so."""
    mask = None if attn_mask is None else attn_mask.detach()
    name = "scaled_dot_product_attention"
    return _of_all_devices(name, query, key, value, mask, 0.0, *arguments, **named)


def _of_all_devices(name: str, *arguments: Any, **named: Any) -> Tensor:
    """An operation by torch's own rule for all devices, below ours."""
    result: Tensor = _operation(name).decompose(*arguments, **named)
    return result


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _with_inputs(operation: Any) -> Callable[..., Any]:
    def in_fp32(*arguments: Any, **named: Any) -> Any:
        return _below(operation, *tree_map(_in_32_bits, (arguments, named)))

    return in_fp32


def _with_result(operation: Any) -> Callable[..., Any]:
    def to_fp32(*arguments: Any, **named: Any) -> Any:
        asked = [
            value for value in (*arguments, *named.values()) if isinstance(value, torch.dtype)
        ]
        if arguments[0].dtype in _HALVES and not asked:
            while arguments[-1] is None:  # a type that is not given, by its place
                arguments = arguments[:-1]
            named = {**named, "dtype": torch.float32}
        return _below(operation, arguments, named)

    return to_fp32


def _below(operation: Any, arguments: Any, named: Any) -> Any:
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(autocast):
        return operation(*arguments, **named)


def _in_32_bits(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype in _HALVES
    return value.float() if is_half else value
