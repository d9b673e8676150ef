"""Kernels of ``autoconf-launch doctor --measure-gpu``: products, attention, copies, all-reduces.

All ranks run each of them at the same time, as in a training, since the GPUs of a node share its
power and its links. A rank without a GPU runs the same kernels, smaller and in fp32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from autoconf_launch.runtime.rank import Ranks

_Product: TypeAlias = tuple[int, int, int]
_LONGEST_S = 4.0
"""Longest time of one kernel's runs, in seconds: with 14 of them a minute."""
_FEWEST, _MOST = 3, 200
_REDUCES = 20
_ATTENTION_BACKWARD = 2.5
"""Operations of flash attention's backward pass over its forward pass, as the cost model counts
them (Dao 2023, arXiv:2307.08691): it computes the scores again."""
_TF32_GAIN = 1.3
"""Gain over fp32 from which on TF32 counts as a unit of the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSizes:
    """KernelSizes of the kernels.

    Attributes:
        products: rows, columns and depth of each product; the last one in fp32, too.
        attention: batch, heads, tokens and width of a head.
        copied_bytes, sent_bytes: sizes of a copy in its own memory, and to the host.
        reduced_bytes: size of a long all-reduce.
    """

    products: tuple[_Product, ...]
    attention: tuple[int, int, int, int]
    copied_bytes: int
    sent_bytes: int
    reduced_bytes: int


GPU_SIZES = KernelSizes(
    products=(
        *((2048, 2048, 13312), (1024, 10240, 5120), (2048, 16384, 3072)),
        *((8192, 8192, 8192), (4096, 14336, 4096), (4096, 4096, 4096)),
    ),
    attention=(2, 16, 4096, 128),
    copied_bytes=512 << 20,
    sent_bytes=256 << 20,
    reduced_bytes=256 << 20,
)
"""The first products are near the fastest shapes on A100, H100 and B200 (github:stas00/
ml-engineering, compute/accelerator/README.md); the others are a layer's."""
CPU_SIZES = KernelSizes(
    products=((256, 256, 256), (512, 512, 512), (256, 1024, 1024)),
    attention=(1, 4, 512, 64),
    copied_bytes=32 << 20,
    sent_bytes=0,
    reduced_bytes=4 << 20,
)


def measure_kernels(
    ranks: Ranks, hosts: Sequence[Sequence[int]], number_format: torch.dtype
) -> dict[str, Any]:
    """Rates of this rank's GPU, in operations or bytes a second; None for what it lacks.

    Args:
        ranks: this rank and its device.
        hosts: the ranks of each host.
        number_format: 16-bit format of products and attention on a GPU.
    """
    is_gpu = ranks.device.type == "cuda"
    sizes = GPU_SIZES if is_gpu else CPU_SIZES
    watch = _Watch(device=ranks.device)
    products = [
        (*shape, _product_flops_per_s(watch, shape, number_format)) for shape in sizes.products
    ]
    forward, backward = _attention_flops_per_s(watch, sizes.attention, number_format)
    fp32, tf32 = _fp32_flops_per_s(watch, sizes.products[-1])
    found = {
        "products": products,
        "attention_flops_per_s": forward,
        "attention_backward_flops_per_s": backward,
        "fp32_flops_per_s": fp32,
        "tf32_flops_per_s": tf32,
        "memory_bytes_per_s": _copy_bytes_per_s(watch, sizes.copied_bytes),
        "host_link_bytes_per_s": _host_bytes_per_s(watch, sizes.sent_bytes) if is_gpu else None,
        **_all_reduce(ranks, hosts, sizes.reduced_bytes),
    }
    if is_gpu:
        card = torch.cuda.get_device_properties(ranks.device)
        found |= {"multiprocessors": card.multi_processor_count, "memory_bytes": card.total_memory}
    return found


@dataclass(frozen=True, slots=True)
class _Watch:
    device: torch.device

    def best_s(self, run: Callable[[], object]) -> float:
        """Seconds of the fastest run after a first one, within the time of one kernel."""
        self.wait(run)
        best_s, runs, until_s = float("inf"), 0, time.perf_counter() + _LONGEST_S
        while runs < _FEWEST or (runs < _MOST and time.perf_counter() < until_s):
            started_s = time.perf_counter()
            self.wait(run)
            best_s = min(best_s, time.perf_counter() - started_s)
            runs += 1
        return best_s

    def wait(self, run: Callable[[], object]) -> None:
        """Run, and wait for the device."""
        run()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _product_flops_per_s(watch: _Watch, shape: _Product, number_format: torch.dtype) -> float:
    """Rate of a product of random numbers; ones take less power."""
    m, n, k = shape
    a = torch.randn(m, k, device=watch.device).to(number_format)
    b = torch.randn(k, n, device=watch.device).to(number_format)
    return 2.0 * m * n * k / watch.best_s(lambda: torch.mm(a, b))


def _fp32_flops_per_s(watch: _Watch, shape: _Product) -> tuple[float, float | None]:
    """Rates in fp32 and in TF32; None if a GPU has no unit for TF32."""
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    try:
        switch.allow_tf32 = False
        fp32 = _product_flops_per_s(watch, shape, torch.float32)
        if watch.device.type != "cuda":
            return fp32, None
        switch.allow_tf32 = True
        tf32 = _product_flops_per_s(watch, shape, torch.float32)
    finally:
        switch.allow_tf32 = before
    return fp32, tf32 if tf32 > _TF32_GAIN * fp32 else None


def _attention_flops_per_s(
    watch: _Watch, sizes: tuple[int, int, int, int], number_format: torch.dtype
) -> tuple[float, float]:
    """Rates of causal attention, forward and backward, of the operations that the mask leaves."""
    batch, heads, tokens, width = sizes
    q, k, v = (
        torch.randn(sizes, device=watch.device).to(number_format).requires_grad_()
        for _ in range(3)
    )

    def attend() -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    out = attend()
    toward = torch.ones_like(out)
    forward_s = watch.best_s(attend)
    backward_s = watch.best_s(
        lambda: torch.autograd.grad(out, (q, k, v), toward, retain_graph=True)
    )
    flops = 2.0 * batch * heads * tokens**2 * width
    return flops / forward_s, _ATTENTION_BACKWARD * flops / backward_s


def _copy_bytes_per_s(watch: _Watch, size: int) -> float:
    """Bytes read and written a second by a copy in the device's own memory."""
    source = torch.zeros(size, dtype=torch.uint8, device=watch.device)
    target = torch.empty_like(source)
    return 2.0 * size / watch.best_s(lambda: target.copy_(source))


def _host_bytes_per_s(watch: _Watch, size: int) -> float:
    """Rate of copies from pinned memory of the host and back, of the slower direction."""
    near = torch.zeros(size, dtype=torch.uint8, device=watch.device)
    far = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    there_s = watch.best_s(lambda: near.copy_(far, non_blocking=True))
    back_s = watch.best_s(lambda: far.copy_(near, non_blocking=True))
    return size / max(there_s, back_s)


def _all_reduce(
    ranks: Ranks, hosts: Sequence[Sequence[int]], size: int
) -> dict[str, float | None]:
    """Bus bandwidth of a long all-reduce of this host's ranks, and the time of an empty one."""
    groups = [dist.new_group(sorted(host)) for host in hosts]  # made by all ranks
    group, peers = next(
        (one, len(host)) for one, host in zip(groups, hosts, strict=True) if ranks.rank in host
    )
    if peers == 1:
        return {"all_reduce_bytes_per_s": None, "all_reduce_s": None}

    def reduce_s(values: torch.Tensor) -> float:
        times_s = []
        for _ in range(_REDUCES):  # as often on each of them
            dist.barrier(group=group)
            started_s = time.perf_counter()
            dist.all_reduce(values, group=group)
            if ranks.device.type == "cuda":
                torch.cuda.synchronize(ranks.device)
            times_s.append(time.perf_counter() - started_s)
        return min(times_s[1:])

    long_s = reduce_s(torch.zeros(size // 4, device=ranks.device))
    empty_s = reduce_s(torch.zeros(1, device=ranks.device))
    bus_bytes = 2.0 * (peers - 1) / peers * size
    return {
        "all_reduce_bytes_per_s": bus_bytes / max(long_s - empty_s, 0.1 * long_s),
        "all_reduce_s": empty_s,
    }
