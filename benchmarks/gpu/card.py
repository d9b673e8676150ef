"""Facts of the GPU that the planner's tables are compared with: versions, memory and rates.

Prints ``name: value`` lines. Matrices are random, because ones multiply up to 13 % faster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import torch
from planned import gpu_of_this_machine

ROWS = 8192
"""Rows and columns of the matrices that are multiplied."""
COPIED_BYTES = 1 << 31
DRIVER_FACTS = (
    "driver_version",
    "memory.total",
    "memory.used",
    "clocks.sm",
    "clocks.max.sm",
    "power.limit",
    "temperature.gpu",
    "compute_mode",
    "mig.mode.current",
    "persistence_mode",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",
)
_REPEATS = 10


def software() -> Iterator[tuple[str, object]]:
    """Versions and the GPU's name."""
    yield "torch", torch.__version__
    yield "CUDA of torch", torch.version.cuda
    yield "CPU threads", torch.get_num_threads()
    if torch.cuda.is_available():
        yield "gpu", torch.cuda.get_device_name(0)
        yield "row of gpus.csv", gpu_of_this_machine() or "none"
        yield "compute capability", ".".join(map(str, torch.cuda.get_device_capability(0)))
    else:
        yield "gpu", "none"


def driver() -> Iterator[tuple[str, object]]:
    """The driver's answers one by one, because drivers differ in what they know."""
    for fact in DRIVER_FACTS:
        command = ("nvidia-smi", f"--query-gpu={fact}", "--format=csv,noheader")
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=9)
        except (OSError, subprocess.SubprocessError):
            yield fact, "no answer"
        else:
            yield fact, answer.stdout.strip()


def memory() -> Iterator[tuple[str, object]]:
    """Bytes by torch; the context is what a process uses before its first tensor."""
    free, total = torch.cuda.mem_get_info()
    yield "bytes by torch", total
    yield "bytes of the context", total - free


def rates() -> Iterator[tuple[str, object]]:
    """Rates of matrix products and of a copy within the GPU's memory."""
    yield f"bf16 TFLOP/s of {ROWS}", f"{_product_tflops(torch.bfloat16):.1f}"
    yield f"TF32 TFLOP/s of {ROWS}", f"{_product_tflops(torch.float32, 'high'):.1f}"
    yield f"fp32 TFLOP/s of {ROWS}", f"{_product_tflops(torch.float32, 'highest'):.1f}"
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_s = _seconds(lambda: target.copy_(source))
    yield "copy TB/s, read and write", f"{2 * COPIED_BYTES / copy_s / 1e12:.2f}"


def _product_tflops(dtype: torch.dtype, precision: str = "highest") -> float:
    torch.set_float32_matmul_precision(precision)
    first, second = (torch.randn(ROWS, ROWS, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * ROWS**3 / _seconds(lambda: torch.mm(first, second)) / 1e12


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of one call, after one call that is not counted."""
    work()
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(_REPEATS):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began_s) / _REPEATS


def main() -> None:
    """Print all facts, the most certain ones first."""
    groups = [software, driver]
    if torch.cuda.is_available():
        groups += [memory, rates]
    for group in groups:
        for name, value in group():
            print(f"{name}: {value}", flush=True)


if __name__ == "__main__":
    main()
