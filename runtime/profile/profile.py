"""The profile run: rank 0 describes the bare model from the script's first batch and ends.

The real model is measured, then traced on fake tensors; if it does not fit, the trace is the whole
description. Both happen in this process, as a fork cannot use CUDA once CUDA has started. The
other ranks end at once.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from autoconf_launch.core import (
    AppliedStrategy,
    DegreeLimits,
    Grade,
    MicroBatchTiming,
    ModelSpec,
)

from ..model import (
    Batch,
    TrainingParts,
    build_model,
    compute_in,
    first_samples,
    held_bytes,
    to_device,
)
from ..parallel import context_split
from ..rank import (
    Ranks,
    Report,
    device_now_s,
    is_allocation_failure,
    leave,
    start_meter,
    write_model_info,
)
from ..stages import stage_split
from .describe import describe

_TRACE_TIMEOUT_S = 60.0
_REPEATS = 5
_ENOUGH_S = 1.0
"""No other repeat of a measurement starts after this time."""
_LONG_S = 5.0
"""Seconds of a step that is measured only once, as its warm-up is short in comparison."""
_STACK_BYTES = 64 << 20
"""The trace recurses deeply, and an emulated memory limit makes the default stack small."""
_META = torch.device("meta")


class Profiler:
    """Replaces a trainer; its first step describes the model and ends the process."""

    def __init__(self, recipe: TrainingParts, ranks: Ranks, report: Report) -> None:
        self._recipe = recipe
        self._ranks = ranks
        self._report = report
        self._built: nn.Module | None = None
        self._now = partial(device_now_s, ranks.device)
        limit = report.task.memory_limit_bytes
        report.meter = self._meter = start_meter(ranks.device, limit, held_bytes(recipe.model))

    @property
    def module(self) -> nn.Module:
        """The bare model; without data on the ranks that do not measure."""
        if self._built is None:
            self._built = self._build()
        return self._built

    @property
    def applied(self) -> AppliedStrategy | None:
        """No strategy, as a profile run lays nothing out."""
        return None

    @property
    def trained(self) -> None:
        """Nothing, so that there is nothing to save or load."""

    def step(self, batch: Batch) -> Tensor:
        """Describe the model; never returns."""
        with self._report.guard():
            if self._ranks.rank == 0:
                write_model_info(self._report.task, self._profile(batch))
            self._report.write()
        leave(0)

    def evaluate(self, batch: Batch) -> Tensor:
        """Nothing is trained; the script goes on to its first step."""
        return torch.zeros((), device=self._ranks.device)

    def _build(self) -> nn.Module:
        source = self._recipe.model
        if self._ranks.rank == 0:
            return build_model(source, self._ranks.device)
        if isinstance(source, nn.Module):
            return source
        with _META:
            return source()

    def _profile(self, batch: Batch) -> ModelSpec:
        """The measurement comes first: a trace can leave fake tensors in caches of the model."""
        measured, refusal = None, None
        try:
            measured = self._measure(batch)
        except Exception as error:
            if not is_allocation_failure(error):
                raise
            refusal = error
        self._meter.lift()
        try:
            work = partial(_trace, self._recipe, batch, measured)
            traced = _in_thread(work, timeout_s=_TRACE_TIMEOUT_S)
        except Exception as error:
            if measured is None:
                raise refusal or error from None
            return replace(measured, notes=(f"{_UNTRACED}: {_summary(error)}",))
        if measured is None:
            return replace(traced, notes=(f"{_TOO_LARGE}: {_summary(refusal)}",))
        return traced

    def _measure(self, batch: Batch) -> ModelSpec:
        self._meter.enforce()
        model, recipe = self.module, self._recipe

        def forward(samples: int) -> Tensor:
            micro_batch = to_device(first_samples(batch, samples), self._ranks.device)
            with compute_in(recipe.config.precision, self._ranks.device):
                return recipe.loss(model, micro_batch)

        def forward_backward(samples: int) -> None:
            model.zero_grad(set_to_none=True)
            torch.autograd.backward(forward(samples))

        described = describe(model, forward, Grade.MEASURED, self._now)
        timings = tuple(
            MicroBatchTiming(
                micro_batch=size,
                forward_backward_s=statistics.median(taken),
                activation_bytes=kept,
                fastest_s=min(taken),
            )
            for size, kept in zip((1, 2), described.kept_bytes, strict=True)
            for taken in (self._seconds(partial(forward_backward, size)),)
        )
        with compute_in(recipe.config.precision, self._ranks.device):
            shared = context_split(model, recipe, batch, self._ranks.device)
        stages = self._stage_split(batch)
        optimizer = recipe.make_optimizer([p for p in model.parameters() if p.requires_grad])
        optimizer_step_s = statistics.median(self._seconds(optimizer.step))
        return replace(
            described.spec,
            timings=timings,
            optimizer_step_s=optimizer_step_s,
            context_split=shared,
            stage_split=stages,
        )

    def _stage_split(self, batch: Batch) -> DegreeLimits:
        precision, device = self._recipe.config.precision, self._ranks.device
        micro_batch = to_device(first_samples(batch, 1), device)

        def loss(model: nn.Module) -> Tensor:
            with compute_in(precision, device):
                return self._recipe.loss(model, micro_batch)

        return stage_split(self.module, loss, precision)

    def _seconds(self, run: Callable[[], object]) -> list[float]:
        """Times of a few runs after a warm-up, or of one long run."""
        start = self._now()
        run()
        first_s = self._now() - start
        taken = [first_s] if first_s > _LONG_S else []
        while len(taken) < _REPEATS and sum(taken) < _ENOUGH_S:
            start = self._now()
            run()
            taken.append(self._now() - start)
        return taken


_UNTRACED = (
    "The model could not be traced on fake tensors, so memory is predicted from two measured "
    "micro-batches only"
)
_TOO_LARGE = "A real run of two samples does not fit, so none was timed"


def _trace(recipe: TrainingParts, batch: Batch, measured: ModelSpec | None) -> ModelSpec:
    """The measured model with traced peaks, or all that a trace tells."""
    from .trace import trace_model, trace_peaks

    if measured is not None:
        return replace(measured, traced_peaks=trace_peaks(recipe.model, batch, recipe))
    return trace_model(
        recipe.model,
        batch,
        loss=recipe.loss,
        make_optimizer=recipe.make_optimizer,
        precision=recipe.config.precision,
    )


def _in_thread(work: Callable[[], ModelSpec], *, timeout_s: float) -> ModelSpec:
    """Run ``work`` in a thread, if no default device and no autocast of the script is active.

    Raises:
        TimeoutError: the time is up; the thread goes on until the process ends.
        Exception: whatever ``work`` raises.
    """
    outcome = Future[ModelSpec]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    usual_bytes = threading.stack_size(_STACK_BYTES)
    threading.Thread(target=run, daemon=True).start()
    threading.stack_size(usual_bytes)
    try:
        return outcome.result(timeout_s)
    except TimeoutError:
        if outcome.done():
            raise
        raise TimeoutError(f"it took longer than {timeout_s:g} s") from None


def _summary(error: BaseException | None) -> str:
    """Two sentences of an error's first line: torch's out-of-memory ones are long."""
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {'. '.join(line.split('. ')[:2])}"
