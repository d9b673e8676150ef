"""The probe: measures an external training script from inside, without a change in its code.

Armed by ``injected/sitecustomize`` once torch is imported. The process that first completes an
optimizer step reports for its rank, in the files that our own runtime writes; after the steps
requested it ends. Only standard library, torch and core.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import util
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autoconf_launch.core import PROBE_VARIABLE, Mode, RankTask, SecretFilter, Sign, sign_path

from .first_forward import FirstForwardProbe
from .locate import Hooks, ManualUpdates, ModuleLocator, UpdatesByHand, set_batch_size
from .model import device_of, stay_out_of_scripts, weights_of
from .observe import Made, Meaning, MemoryWatch, StepCounter, dynamo_ran, loss_of, sum_of
from .probe_report import (
    Endings,
    Helper,
    Live,
    RankReporter,
    Reasons,
    claim_rank,
    claim_stepless_rank,
    mark_children,
)
from .rank import CompileTime, autocast_format, is_allocation_failure, leave
from .redirect import Surroundings, safely
from .soak import TrainingData


def arm_probe() -> Probe | FirstForwardProbe | None:
    """Begin to listen in this process, as the environment asks; None: it does not ask."""
    set_batch_size()
    if not (value := os.environ.get(PROBE_VARIABLE)):
        return None
    task = RankTask.from_variable(value)
    probe = FirstForwardProbe(task) if task.mode is Mode.FIRST_FORWARD else Probe(task)
    probe.install()
    return probe


class Probe:
    """Observes the script, and reports for a rank once it has claimed it."""

    def __init__(self, task: RankTask) -> None:
        self._task = task
        self._hooks = Hooks(self)
        self._endings = Endings(self)
        self._locator = ModuleLocator(self, self._hooks.running.__len__)
        self._helper = Helper()
        mark_children()
        self._surroundings = Surroundings(own=task.folder)
        self._compile_time = CompileTime(task)
        self._begin()

    def _begin(self) -> None:
        self.silent = False
        self._hooks.reset()
        self._hooks.data = TrainingData(self._task.end_step) if self._task.soak else None
        self._counter = StepCounter(self._task.micro_batch)
        self._optimizers = WeakKeyDictionary[Optimizer, int]()
        self._memory = MemoryWatch()
        self._reporter: RankReporter | None = None
        self._loss: Tensor | None = None
        self._autocast: torch.dtype | None = None
        self._manual_updates: ManualUpdates | None = ManualUpdates()
        """None once a torch optimizer has made a step."""
        self._trains = self._lost = self._written = False
        self._reasons = Reasons()
        self._locator.draw_size = lambda: self._counter.draw_size

    def install(self) -> None:
        """Listen from here on, in this process and in those that it forks."""
        self._surroundings.guard()
        self._hooks.install()
        self._endings.install()
        self._locator.look()
        self._locator.watch_compile(self.compiles)
        stay_out_of_scripts()
        os.register_at_fork(after_in_child=self._begin)
        util.register_after_fork(self, Probe._after_fork)
        path = sign_path(self._task, Sign.ARMED.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def give_up(self, error: Exception) -> None:
        """Report our own error, and end a training that is not measured."""
        self.silent = True
        text = SecretFilter.from_environment().text(f"{type(error).__name__}: {error}")
        with suppress(OSError):
            sign_path(self._task, Sign.BROKEN.value).write_text(text, errors="backslashreplace")
            if self._trains and not self._helper:
                leave(0)

    @safely
    def call_begins(self, module: nn.Module) -> None:
        self._memory.begin(module, self._task.memory_limit_bytes)
        self._autocast = self._autocast or autocast_format()

    def on_call(self, samples: int) -> None:
        self._counter.forward(samples)  # cannot raise, and is met in every step

    @safely
    def compiles(self) -> None:
        self._hooks.compiles()
        self._compile_time.watch()

    @safely
    def on_evaluation(self) -> None:
        if self._hooks.data is not None:
            self._hooks.data.evaluates()
        if self._reporter:
            self._reporter.beside.on_evaluation()

    @safely
    def backward_begins(self, tensors: Any) -> None:
        if not self._trains:
            self._trains = True
            self._surroundings.training_begins()
        if self._reporter and self._reporter.timeline.pause is not None:
            self._reporter.beside.on_resume()
        data = self._hooks.data
        if data is not None and data.trains() and self._reporter:
            self._finish(self._reporter)
        if self._manual_updates is not None:
            self._count_manual_update(self._manual_updates)
        first = self._counter.backward() == 1
        loss = loss_of(tensors)
        self._loss = loss if first else sum_of(self._loss, loss)

    def _count_manual_update(self, updates: ManualUpdates) -> None:
        """A backward pass begins, and no torch optimizer has made a step."""
        started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if started and torch.cuda.is_current_stream_capturing():
            return  # reading a weight would end the capture
        modules = self._locator.candidates
        if updates.ends_step(modules) and updates.optimizer is not None:
            step = partial(self.on_step, updates.optimizer)
            self._hooks.after_backward = step if updates.steps > 1 else self.on_skip
        elif updates.optimizer is None:
            if updates.is_irregular:
                self.on_end(None)
                leave(0)
            self._hooks.after_backward = partial(updates.end_pass, modules)

    @safely
    def on_step(self, optimizer: Optimizer) -> None:
        if (data := self._hooks.data) is not None and data.is_over and self._reporter:
            self._counter.on_skip()
            if not data.is_left_over():
                self._finish(self._reporter)
            return
        made = self._counter.step_of_pacer(optimizer)
        if made is not None:
            self._boundary(optimizer, made)
            return
        size = self._optimizers.get(optimizer)
        if size is None:
            size = self._add(optimizer)
        meaning = self._counter.step(optimizer, size)
        if meaning is Meaning.BOUNDARY:
            self._boundary(optimizer, self._counter.last_step())
        elif meaning is Meaning.RESTART:
            self._locator.look()
            if self._reporter:
                self._reporter.restart()

    def _add(self, optimizer: Optimizer) -> int:
        size = sum(weight.numel() for weight in weights_of(optimizer))
        self._optimizers[optimizer] = size
        if not isinstance(optimizer, UpdatesByHand):
            self._manual_updates = None
        return size

    @safely
    def on_skip(self) -> None:
        self._counter.on_skip()
        if self._reporter:
            self._reporter.timeline.begin()

    def drew(self, batch_size: int | None) -> None:
        self._counter.draw(batch_size)  # cannot raise, and is met in every step
        if self._reporter and self._reporter.timeline.pause is not None:
            self._reporter.timeline.drew()

    @safely
    def on_failure(self, error: BaseException) -> None:
        if self._reporter and (self._counter.has_begun or torch.is_grad_enabled()):
            self._reporter.beside.on_resume()
        elif self._reporter:
            self._reporter.beside.fails()
        self._counter.on_skip()
        self._reasons.on_failure(error)

    @safely
    def giving_up(self, error: BaseException | None, status: object) -> None:
        self._reasons.exits(status)
        if error is not None and is_allocation_failure(error):
            self.on_failure(error)

    @safely
    def thread_died(self, error: BaseException) -> None:
        self._reasons.thread_died(error)

    def uncaught(self, error: BaseException) -> bool:
        self.on_end(error)
        return self._written

    @safely
    def on_end(self, error: BaseException | None) -> None:
        if self._written:
            return
        self._memory.lift()
        if self._reporter and self._counter.has_begun:
            self._reporter.beside.on_resume()
        steps = self._reporter.timeline.steps if self._reporter else 0
        word = self._reasons.last_word(error, steps)
        trained = self._trains or word.is_out_of_memory
        if self._reporter is None and trained and not self._helper:
            self._reporter = claim_stepless_rank(self._task, self._memory)
        if self._reporter:
            self._written = True
            self._reporter.write(replace(word, left_behind=self._surroundings.new()))

    def _boundary(self, optimizer: Optimizer, made: Made, number: int | None = None) -> None:
        """A step has ended; with its number: the backward pass that it ended in has, too."""
        reporter = self._reporter or self._claim_rank(optimizer)
        if reporter is None:
            self.silent = True
            return
        if number is None:
            self._reasons.trains()
            number = reporter.step(made, self._loss)
            if self._hooks.running:  # a gradient's hook: modes that begin there end with it
                later = partial(self._late_boundary, optimizer, made, number)
                self._hooks.after_backward = later
                return
        settled = not self._locator.looking and self._counter.forwards_in_step
        if number <= reporter.last_untimed or not settled:
            self._follow(optimizer, number, reporter)
        if reporter.is_last(number) and not reporter.goes_on():
            self._finish(reporter)
        reporter.turns.after_step(number)

    _late_boundary = safely(_boundary)

    def _finish(self, reporter: RankReporter) -> None:
        reporter.timeline.settle()  # raises in the script if its last step broke the GPU
        self._written = True
        self._memory.lift()
        word = self._reasons.word_of_success()
        reporter.finish(replace(word, left_behind=self._surroundings.new()))

    def _claim_rank(self, optimizer: Optimizer) -> RankReporter | None:
        self._reporter = claim_rank(self._task, device_of(optimizer), self._memory)
        if self._reporter is not None:
            self._reporter.beside.data = self._hooks.data
            self._reporter.leftovers = self._surroundings.leftovers
            self._surroundings.tell(self._reporter.beside)
            if isinstance(optimizer, UpdatesByHand) and self._manual_updates is not None:
                self._reporter.notes.append(self._manual_updates.note)
        return self._reporter

    def _follow(self, optimizer: Optimizer, number: int, reporter: RankReporter) -> None:
        """Keep an eye on the root, and look around if no time is taken."""
        lost = not self._counter.forwards_in_step
        if self._locator.looking:
            self._locator.settle(weights_of(optimizer))
        elif lost and number > 1 and not self._lost and not dynamo_ran():
            self._lost = True
            self._locator.look()
        if number <= reporter.last_untimed:
            live = Live(
                modules=self._locator.candidates,
                optimizers=tuple(self._optimizers),
                in_backward=lambda: self._hooks.in_backward,
                autocast=self._autocast or self._compile_time.autocast,
            )
            reporter.between(number, self._locator.root, live)
            reporter.timeline.begin()

    def _after_fork(self) -> None:
        """Multiprocessing has made a child, which forgot its finalizers."""
        self._endings.finalize()
