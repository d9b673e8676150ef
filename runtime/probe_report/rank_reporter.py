"""A process that has claimed its rank: keeps its steps, looks into one, writes its last word.

Not here: which calls are steps (``steps``), and which calls are observed (the probe).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _get_current_dispatch_mode

from autoconf_launch.core import (
    MODEL_INFO_FILE,
    AppliedStrategy,
    Failure,
    FailureKind,
    MemoryUse,
    RankResult,
    RankTask,
    encode,
    plural,
    real_time,
    result_file,
)

from ..locate import find_strategy, leave_after, stated_precision
from ..observe import (
    Exchange,
    Made,
    MemoryWatch,
    Pieces,
    StepWatch,
    Timeline,
    apart,
    clock_of,
    first_not_finite,
    has_compiled_part,
    use_before_training,
)
from ..rank import (
    Ranks,
    Turns,
    classify,
    is_device_lost,
    last_words,
    leave,
    shown_json,
    write_whole,
)
from ..soak import Beside
from .claim import Agreement, Claim, find_place, inspected_step
from .ending import LastWord

_MODEL_FLOPS = 3.0
"""Operations of a step over its forward pass, without recomputation as in our own trials."""


_ONE_OF_SEVERAL = (
    "Several processes of the script train at once without a process group: speed and memory "
    "describe one of them, not all."
)


_GROWN = (
    "Steps of the script had {before} at first and {after} later: its accumulation changes while "
    "it trains. Speeds count the samples of each step."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Modules and optimizers that the script holds now."""

    modules: tuple[nn.Module, ...]
    optimizers: tuple[Optimizer, ...]
    in_backward: Callable[[], bool]
    autocast: torch.dtype | None
    """Format of autocast at the start of a forward pass; None: it was off."""


class RankReporter:
    """A rank's report in the making."""

    def __init__(
        self,
        task: RankTask,
        claim: Claim,
        here: Ranks,
        memory: MemoryWatch,
    ) -> None:
        clock = clock_of(here.device)
        self.timeline = Timeline(task, here.rank, clock, began_s=memory.began_s)
        self.watch: StepWatch | None = None
        self._task = task
        self._claim = claim
        self._place = here
        self._memory = memory
        self._inspected = inspected_step(task)
        self._agreement = Agreement(task, here, lead=2 if here.device.type == "cuda" else 1)
        self._applied: AppliedStrategy | None = None
        self._pieces: Pieces | None = None
        self._flops: float | None = None
        self._largest = Made(micro_batch=0, accumulation=1)
        self._grown = ""
        """A sentence if steps later had more micro-batches than the first ones."""
        self.notes: list[str] = []
        """Sentences for the user."""
        self._device = here.device.type
        self._exchange = Exchange()
        self.beside = Beside(task, here.rank, self.timeline, self._so_far)
        self.turns = Turns(
            task, here.rank, settle=self.timeline.settle, restart=self.timeline.begin
        )
        self._last_made = self._looked_into = self._largest
        self.last_untimed = self._inspected or 1
        """The last step after which there is time to look around."""
        self.is_last = self._agreement.is_last
        """True if all ranks end after a step."""
        self.leftovers: Callable[[], tuple[str, ...]] = tuple
        """Files that the script has written and that are not removed."""

    def step(self, made: Made, loss: Tensor | None) -> int:
        """A step has ended; its number."""
        if made is not self._last_made:
            self._last_made = made
            if made.samples > self._largest.samples:
                if self.timeline.steps > 1 and made.micro_batch == self._largest.micro_batch:
                    self._grown = _GROWN.format(
                        before=plural(self._largest.accumulation, "micro-batch", "micro-batches"),
                        after=made.accumulation,
                    )
                self._largest = made
        paused = self.timeline.pause is not None
        number = self.timeline.end(made, loss)
        self.beside.on_step(paused=paused)
        if self.beside.data is not None:
            self._agreement.on_step(number, can_end=self.beside.data.can_end)
        if self._task.soak:
            self._memory.follow(paused=paused)
            if number >= self._task.start_step:
                self.beside.write()
        return number

    def goes_on(self) -> bool:
        """After the last step: True if the script goes on to its actions after an epoch."""
        return self.beside.goes_on(self._agreement.agree_to_go_on)

    def between(self, number: int, root: nn.Module | None, live: Live) -> None:
        """After step ``number`` and before the next one, outside of both: look around."""
        if number == 1:
            self._exchange.begin()
        if self.watch:
            self._conclude()
        self._describe(root, live)
        if number + 1 == self._inspected and root is not None:
            self._look_closely(root, live)

    def restart(self) -> None:
        """The steps so far did not belong to the training."""
        if self.watch:
            self.watch.stop()
            self.watch = None
        self._largest = self._last_made = Made(micro_batch=0, accumulation=1)
        self._grown = ""
        self.beside.restart()
        self._agreement.restart()
        self.timeline.restart()

    def finish(self, word: LastWord) -> None:
        """Write the result of the steps asked for; when the others have come as far, leave."""
        self.write(word, end_step=self._agreement.stop)
        self._agreement.wait_for_peers(paused=self.beside.went_on)
        self.turns.end()
        leave(0)

    def write(self, word: LastWord, end_step: int | None = None) -> None:
        """Write the result, and rank 0 the model's description."""
        if self.watch:
            self.watch.stop()
        if self.beside.went_on:
            self._memory.follow(paused=True)
        word = self._settle(word)
        records = self.timeline.records
        if word.ended_early:
            if len(records) == self._inspected:
                records.pop()
            end_step = len(records)
            self.beside.on_end()
        if self._claim.holds():
            self._write_model_info()
            result = self._result(word, end_step)
            path = Path(self._task.folder, result_file(self._place.rank))
            write_whole(path, shown_json(encode(result)))
        self._agreement.on_end()
        if word.ended_early:
            self.turns.end()

    def _settle(self, word: LastWord) -> LastWord:
        """Wait for the device; if it is lost, its error is the reason unless there is another."""
        try:
            self.timeline.settle()
        except RuntimeError as error:
            if not is_device_lost():
                raise
            if word.failure is None:
                return replace(word, failure=classify(error), error=error, ended_early=False)
        return word

    def _so_far(self) -> RankResult | None:
        if not self._claim.holds():
            return None
        end_step, word = None, LastWord()
        if self.beside.went_on:
            end_step = self._agreement.stop
            word = LastWord(left_behind=self.leftovers())
            self.timeline.settle()
        self.timeline.write_passed()
        return self._result(word, end_step=end_step)

    def _result(self, word: LastWord, end_step: int | None) -> RankResult:
        failure = word.failure and self.beside.judge(word.failure, self.timeline.steps)
        if failure and failure.kind is FailureKind.CRASHED and word.error:
            tail = last_words(Path(self._task.folder), word.error)
            failure = replace(failure, log_tail=tail)
        bad = first_not_finite(self.timeline.records)
        if bad and not failure:
            detail = f"the loss of optimizer step {bad.step} is {bad.loss}"
            failure = Failure(kind=FailureKind.NAN, detail=detail)
        if not failure and self._are_apart():
            detail = apart(self._place.world_size, self._device)
            failure = Failure(kind=FailureKind.NOT_APPLIED, detail=detail)
        return RankResult(
            rank=self._place.rank,
            world_size=self._place.world_size,
            attempt=self._task.attempt,
            ended_unix_s=real_time.time(),
            steps=tuple(self.timeline.records),
            failure=failure,
            applied=self._applied_now(),
            memory=self._memory_use(word),
            flops_per_step=self._flops,
            end_step=end_step,
            caught=word.caught,
            ended_early=word.ended_early,
            left_behind=word.left_behind,
            notes=tuple(filter(None, self._all_notes(word))),
            asides=self.beside.summary() if self.timeline.steps else None,
            crowded=self._claim.is_crowded,
        )

    def _all_notes(self, word: LastWord) -> tuple[str, ...]:
        shared = _ONE_OF_SEVERAL if self._claim.is_shared else ""
        return (*self.notes, *word.notes, self._grown, shared)

    def _memory_use(self, word: LastWord) -> MemoryUse | None:
        larger = self._largest.micro_batch > self._looked_into.micro_batch
        with suppress(RuntimeError):  # a lost device says nothing more
            use = self._memory.use(word.asked_bytes, larger=larger)
            if use is not None or not word.is_out_of_memory:
                return use
            limit = self._task.memory_limit_bytes
            return use_before_training(word.asked_bytes, limit, of_weights=word.of_weights)
        return None

    def _are_apart(self) -> bool:
        """True if there are other ranks, of which this one's training takes no notice."""
        several = self._place.world_size > 1 and self.timeline.steps > 1
        joined = self._applied is not None and self._applied.data_parallel > 1
        return several and not joined and self._exchange.is_nothing()

    def _look_closely(self, root: nn.Module, live: Live) -> None:
        if _get_current_dispatch_mode() is not None:  # ours would end while the script's goes on
            self.notes.append(
                "The script uses a torch dispatch mode of its own, so FLOPs are not counted."
            )
            return
        if has_compiled_part(root):
            self.notes.append(
                "Under torch.compile FLOPs and pieces of the model are not recorded."
            )
            self._pieces = Pieces(root)
            return
        self._memory.look()
        several = self._device == "cuda" and self._last_made.accumulation > 1
        self.watch = StepWatch(root, live.modules, live.in_backward, first_alone=several)
        self.watch.start(live.optimizers)

    def _conclude(self) -> None:
        assert self.watch
        self.watch.stop()
        self._memory.end_look(self.watch.storages_peak_bytes)
        self._looked_into = self._last_made
        self._flops = _MODEL_FLOPS * self.watch.step_flops or None
        self._pieces = self.watch.pieces
        self._pieces.let_go()

    def _describe(self, root: nn.Module | None, live: Live) -> None:
        watch, self.watch = self.watch, None
        if root is None:
            return
        self._applied = find_strategy(
            root,
            live.optimizers,
            made=self._largest,
            precision=watch.precision if watch else stated_precision(root, live.autocast),
            recompute=watch.recompute if watch else None,
        )
        self._pieces = self._pieces or Pieces(root)
        self._pieces.let_go()

    def _applied_now(self) -> AppliedStrategy | None:
        made = self._largest
        return self._applied and replace(
            self._applied, micro_batch=made.micro_batch, accumulation=made.accumulation
        )

    def _write_model_info(self) -> None:
        if self._place.rank != 0 or self._pieces is None:
            return
        spec = self._pieces.spec(self._largest.micro_batch)
        names = {
            "num_params": spec.parameters,
            "trainable_num_params": spec.trainable_parameters,
            "activation_mem_per_gpu": spec.activation_bytes_per_sample,
        }
        path = Path(self._task.folder, MODEL_INFO_FILE)
        write_whole(path, shown_json({**encode(spec), **names}, indent=2))
        self._pieces = None


def claim_rank(task: RankTask, device: torch.device, memory: MemoryWatch) -> RankReporter | None:
    """Speak for this process's rank from its first step on.

    None: another process does, and this one ends when that has spoken.
    """
    here = find_place(device)
    claim = Claim(task, here.rank)
    if claim.take():
        return RankReporter(task, claim, here, memory)
    leave_after(Path(task.folder, result_file(here.rank)))
    return None


def claim_stepless_rank(task: RankTask, memory: MemoryWatch) -> RankReporter | None:
    """Speak for a rank that made no step, unless any process ever spoke for it."""
    here = find_place(torch.device("cpu"))
    claim = Claim(task, here.rank)
    return RankReporter(task, claim, here, memory) if claim.take_first() else None
