"""Memory and step time of ``train.py`` as planned and as measured, in one process.

Writes a row to ``--out`` after each configuration, the most informative ones first, and stops
after ``--seconds``. Memory is what the process reserves and its context, as the driver counts.
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TextIO

import torch
from planned import Configuration, Prediction, Question, gpu_of_this_machine, predict
from torch import Tensor, nn
from train import DEVICE, SHAPES, Decoder, Shape

GIB = 2**30
MATMUL_PRECISION = {"bf16": "highest", "fp32": "highest", "tf32": "high"}
COLUMNS = (
    "model",
    "global_batch",
    "micro_batch",
    "checkpointing",
    "precision",
    "compiled",
    "outcome",
    "first_step_s",
    "step_s",
    "step_spread",
    "allocated_gib",
    "reserved_gib",
    "context_gib",
    "predicted_fits",
    "predicted_gib",
    "predicted_step_s",
    "driver_error",
    "time_error",
)
"""``driver_error`` compares memory with reserved and context together."""
_TIMED_S = 1.5
_MOST_STEPS = 6


@dataclass(frozen=True, kw_only=True)
class Case:
    """A configuration of one model at one global batch."""

    model: str
    global_batch: int
    configuration: Configuration


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Steps of one configuration; bytes are peaks, None on a CPU.

    Attributes:
        step_s: durations of the timed steps, in seconds.
        context_bytes: memory that the driver counts beyond what torch reserves.
    """

    first_step_s: float
    step_s: tuple[float, ...]
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    context_bytes: int | None = None

    @property
    def median_step_s(self) -> float:
        """Median duration of the timed steps, in seconds."""
        return statistics.median(self.step_s)

    @property
    def spread(self) -> float:
        """Relative difference between the slowest and the fastest step."""
        return max(self.step_s) / min(self.step_s) - 1.0

    @property
    def driver_bytes(self) -> int | None:
        """Peak memory as the driver counts it."""
        if self.reserved_bytes is None or self.context_bytes is None:
            return None
        return self.reserved_bytes + self.context_bytes


def cases(model: str, batch: int) -> list[Case]:
    """The cases of one run: bf16 first, then fp32, TF32 and a second model."""
    modes = ("none", "full")
    bf16 = [
        Configuration(micro_batch=size, checkpointing=mode)
        for size, mode in product((16, 4, 8), modes)
    ]
    common = [
        *bf16,
        Configuration(micro_batch=8, precision="fp32"),
        Configuration(micro_batch=8, precision="tf32"),
    ]
    extreme = [
        Configuration(micro_batch=32, checkpointing="full"),
        Configuration(micro_batch=32),
        Configuration(micro_batch=1),
        Configuration(micro_batch=2),
        Configuration(micro_batch=8, precision="fp32", checkpointing="full"),
        Configuration(micro_batch=1, checkpointing="full"),
        Configuration(micro_batch=16, precision="tf32", checkpointing="full"),
    ]
    llama = [
        Configuration(micro_batch=4),
        Configuration(micro_batch=8, checkpointing="full"),
        Configuration(micro_batch=1),
    ]
    listed = [
        *((model, batch, one) for one in common),
        *(("llama3.2-1b", 8, one) for one in llama if model == "gpt2-large"),
        *((model, batch, one) for one in extreme),
    ]
    return [
        Case(model=name, global_batch=size, configuration=one)
        for name, size, one in listed
        if one.micro_batch <= size
    ]


def compiled_cases(model: str, batch: int) -> list[Case]:
    """One configuration without and with ``torch.compile``."""
    return [
        Case(
            model=model,
            global_batch=batch,
            configuration=Configuration(micro_batch=min(16, batch), compiled=compiled),
        )
        for compiled in (False, True)
    ]


def measure(case: Case) -> Measured:
    """Train a few steps of a fresh model.

    Raises:
        torch.OutOfMemoryError: the configuration does not fit.
    """
    configuration, shape = case.configuration, SHAPES[case.model]
    torch.set_float32_matmul_precision(MATMUL_PRECISION[configuration.precision])
    torch.manual_seed(0)
    with DEVICE:
        model = Decoder(shape, recompute=configuration.checkpointing == "full")
    if configuration.compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ignored = 2 if configuration.compiled else 1
    steps: list[float] = []
    while len(steps) <= ignored or (sum(steps[ignored:]) < _TIMED_S and len(steps) < _MOST_STEPS):
        began_s = _now_s()
        _step(model, optimizer, configuration, case.global_batch, shape)
        steps.append(_now_s() - began_s)
    return Measured(first_step_s=steps[0], step_s=tuple(steps[ignored:]), **_memory())


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    configuration: Configuration,
    global_batch: int,
    shape: Shape,
) -> None:
    accumulation = global_batch // configuration.micro_batch
    size = (configuration.micro_batch, shape.tokens + 1)
    half = torch.autocast(DEVICE.type, torch.bfloat16, enabled=configuration.precision == "bf16")
    for _ in range(accumulation):
        text: Tensor = torch.randint(shape.vocabulary, size).to(DEVICE)
        with half:
            loss = model(text)
        (loss / accumulation).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _now_s() -> float:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _memory() -> dict[str, int]:
    if DEVICE.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "context_bytes": total - free - torch.cuda.memory_reserved(),
    }


def outcome_of(case: Case) -> Measured | str:
    """The measurement, or the failure in a few words."""
    if DEVICE.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        return measure(case)
    except torch.OutOfMemoryError:
        return "out of memory"
    except RuntimeError as error:
        return f"failed: {str(error).splitlines()[0][:120]}"


def row_of(case: Case, outcome: Measured | str, prediction: Prediction) -> dict[str, Any]:
    """The cells of one case, by column."""
    fits = {None: "", True: "yes", False: "no"}[prediction.fits]
    row: dict[str, Any] = {
        "model": case.model,
        "global_batch": case.global_batch,
        **vars(case.configuration),
        "predicted_fits": fits,
        "predicted_gib": _gib(prediction.peak_bytes),
        "predicted_step_s": _number(prediction.step_s),
    }
    if isinstance(outcome, str):
        return row | {"outcome": outcome}
    return row | {
        "outcome": "measured",
        "first_step_s": _number(outcome.first_step_s),
        "step_s": _number(outcome.median_step_s),
        "step_spread": percent(outcome.spread),
        "allocated_gib": _gib(outcome.allocated_bytes),
        "reserved_gib": _gib(outcome.reserved_bytes),
        "context_gib": _gib(outcome.context_bytes),
        "driver_error": percent(relative_error(prediction.peak_bytes, outcome.driver_bytes)),
        "time_error": percent(relative_error(prediction.step_s, outcome.median_step_s)),
    }


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """The prediction's relative error; None if either number is missing."""
    return predicted / measured - 1.0 if predicted and measured else None


def percent(share: float | None) -> str:
    """A signed percentage; empty for None."""
    return "" if share is None else f"{100 * share:+.1f}%"


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"


def _number(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.4f}"


def write(listed: Sequence[Case], gpu: str | None, seconds: float, file: TextIO) -> None:
    """Measure the cases one after the other; each row is on disk before the next case begins."""
    began_s = time.perf_counter()
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    for case in listed:
        if time.perf_counter() - began_s > seconds:
            print(f"out of time before {case}", flush=True)
            return
        question = Question(model=case.model, gpu=gpu, global_batch=case.global_batch)
        row = row_of(case, outcome_of(case), predict(question, case.configuration))
        writer.writerow(row)
        file.flush()
        print(*row.values(), flush=True)


def main() -> None:
    """Measure the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="gpt2-large")
    parser.add_argument("--gpu", help="its name in our tables; default: this machine's")
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=90, help="last start of a case")
    parser.add_argument("--compiled", action="store_true", help="compare torch.compile only")
    parser.add_argument("--out", type=Path, default=Path("predicted.csv"))
    options = parser.parse_args()
    choose = compiled_cases if options.compiled else cases
    gpu = options.gpu or gpu_of_this_machine()
    with options.out.open("w", newline="") as file:
        write(choose(options.model, options.global_batch), gpu, options.seconds, file)


if __name__ == "__main__":
    main()
