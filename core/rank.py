"""The launcher's task for a rank, and the rank's report.

The task travels in one environment variable; each rank appends to one ``steps.jsonl`` and
writes its own result file into the task's folder.

One environment variable starts a probe. Whatever happens to it leaves a small file below the
trial's folder, named after the attempt, so that a silent launch can be explained.

Everything is of one rank and of the micro-batch that the script made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from .codec import decode, encode
from .errors import Failure
from .layout import Candidate, KnobValue, Layout, Precision, Recompute
from .model_spec import ModelSpec, TracedPeak

if TYPE_CHECKING:
    import time as real_time
else:
    from importlib.util import module_from_spec
    from time import __spec__ as _spec

    real_time = module_from_spec(_spec)
    """A separate copy of ``time``: a script may freeze or reverse the functions of the first."""
    _spec.loader.exec_module(real_time)

TASK_VARIABLE = "AUTOCONF_LAUNCH_TASK"
JOB_VARIABLE = "AUTOCONF_LAUNCH_JOB"
"""Marks every process of a launch, so that it is found whatever became of its parents."""
STEPS_FILE = "steps.jsonl"
END_FILE = "end_step"
"""In it the launcher tells running ranks to end at another step: ``<attempt> <step>``."""
MODEL_INFO_FILE = "model_info.json"
CONTEXT_BYTES = 3 << 28
"""Device memory of one process outside of torch's allocator: CUDA context, kernels and library
workspaces. An H100 shows about 0.5 GiB for an idle context (recalled)."""
PROBE_VARIABLE = "AUTOCONF_LAUNCH_PROBE"
"""Holds a :class:`RankTask` as ``RankTask.to_variable`` writes it."""
SIGNS_FOLDER = "probe"
DOCTOR_MARK = "autoconf-launch doctor: "
"""Begins the line that each rank of ``doctor`` prints."""
FIRST_FORWARD_FILE = "first_forward.json"


def turn_file(rank: int) -> str:
    """Name of the pipe from which a rank reads that it is its turn."""
    return f"turn{rank}"


def result_file(rank: int) -> str:
    """Name of a rank's result file: ``result.json`` for rank 0, else ``result_rank<n>.json``."""
    return "result.json" if rank == 0 else f"result_rank{rank}.json"


class Mode(str, Enum):
    """The reason why a rank runs."""

    MEASURE = "measure"
    """Time the steps asked for, report, exit."""
    PROFILE = "profile"
    """Describe the model (``model_info.json``), report, exit."""
    FIRST_FORWARD = "first_forward"
    """Describe another's script from its first forward pass (``first_forward``), exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """The task of a trial's ranks; without a task a rank only trains.

    Attributes:
        mode: why the rank runs.
        folder: absolute path for steps, results and the model's description.
        attempt: token that ties a result to this launch and no earlier one.
        start_step: first optimizer step that counts, from 1.
        end_step: last optimizer step that counts; the rank exits after it.
        most_steps: the launcher may move the end while the ranks run, but not beyond this step;
            None if ``end_step`` is fixed.
        next_folder: the folder of the launch that each rank hands the turn to after a step, its
            peer of the same number; None if it waits for no other rank.
        first_turn: it begins, unasked.
        turn_steps: steps of a turn, once steps count.
        cut_s: seconds after which a first step that is still running ends with the micro-batches
            that it has, and after which no other step begins; None: every step is whole.
        soak: the last step takes the largest batch that the rank has seen.
        ends_epoch: if no evaluation or no checkpoint was seen by the last step, the script's
            data ends after it, so that the script goes on to what it does after an epoch.
        micro_batch: requested samples of each forward pass; None if a script decides.
        memory_limit_bytes: device memory that the rank holds itself to; on CPU over its use after
            imports, on a GPU with its context. None if the device's own size is the limit.
    """

    mode: Mode
    folder: str
    attempt: str
    start_step: int = 3
    end_step: int = 5
    micro_batch: int | None = None
    memory_limit_bytes: int | None = None
    most_steps: int | None = None
    soak: bool = False
    ends_epoch: bool = False
    next_folder: str | None = None
    first_turn: bool = False
    turn_steps: int = 1
    cut_s: float | None = None

    def turns_before(self, step: int) -> int:
        """Turns that have ended with this step: one for each that does not count, then longer."""
        untimed = self.start_step - 1
        return min(step, untimed) + max(0, step - untimed) // self.turn_steps

    def to_variable(self) -> str:
        """The value of the environment variable ``TASK_VARIABLE``."""
        return json.dumps(encode(self))

    @staticmethod
    def from_variable(value: str) -> RankTask:
        """Read a task that :meth:`to_variable` wrote."""
        return decode(RankTask, json.loads(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """An optimizer step of one rank, data loading included; ``step`` counts from 1."""

    rank: int
    step: int
    wall_s: float
    samples: int
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """A first optimizer step that ended before all of its micro-batches were made.

    Attributes:
        whole: micro-batches that it would have had.
        micro_s: seconds of each micro-batch but the last, the first (warm-up) included.
        rest_s: seconds of the last micro-batch, with gradient exchange and update.
        samples: of this rank in a whole step.
    """

    whole: int
    micro_s: tuple[float, ...]
    rest_s: float
    samples: int
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedStrategy:
    """The strategy that ran, read from the live model and optimizer.

    ``extras`` are the knobs of ``RUNTIME_KNOBS`` that this stage has, with the values found;
    ``pipeline_split`` has the blocks of each stage, None if they are even and were not given;
    ``recompute`` is None if the backward pass could not be inspected, as under torch.compile.
    ``learning_rate`` is the initial rate of a schedule, if there is a schedule;
    ``optimizer`` the class that holds it.
    """

    zero_stage: int
    data_parallel: int
    micro_batch: int
    accumulation: int
    precision: Precision
    recompute: Recompute | None
    tensor_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    sequence_parallel: bool = False
    pipeline_parallel: int = 1
    virtual_pipeline: int = 1
    pipeline_split: tuple[int, ...] | None = None
    micro_batch_split: tuple[int, ...] | None = None
    description: str = ""
    extras: tuple[tuple[str, KnobValue], ...] = ()
    learning_rate: float | None = None
    optimizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Device memory of one rank; on CPU the process's memory over its use after imports.

    On a GPU ``peak_bytes`` is what the driver counts, since that is what runs out: the most that
    torch's allocator reserved, and the context. It includes an allocation that was refused.

    Attributes:
        free_before_bytes: free at the start; on a GPU with the rank's own context.
        peak_bytes: most that was used.
        limit_bytes: size of the device, or the memory limit if that is smaller.
        reserved_bytes: most that an allocator kept, if it is measured separately.
        allocated_bytes: most that tensors on a GPU held.
        weights_alone: nothing but the model's weights was in memory when it did not suffice.
    """

    free_before_bytes: int
    peak_bytes: int
    limit_bytes: int
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    weights_alone: bool = False


class Aside(str, Enum):
    """A kind of it, by the word that people use."""

    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


class WentOn(str, Enum):
    """A script's progress after the steps of its task."""

    EPOCH = "epoch"
    """It did what follows an epoch, up to its next training step or the end of the wait."""
    END = "end"
    """It went to its own end."""
    EPOCH_END = "epoch_end"
    """It did what follows an epoch whose data was ended early, and went to its end from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asides:
    """Events between the steps of one rank, or of a whole launch.

    Attributes:
        evaluations: pauses between steps in which the model was called without gradients, in
            evaluation mode.
        evaluation_batches: these calls.
        checkpoints: pauses in which tensors were saved.
        saved_bytes: that they took; ranks together.
        under_way: the aside that had begun last and had not ended; None: the next step had begun.
        before_steps: numbers of steps whose time excludes a pause before them.
        longest_batch: the last step took the longest batch that was seen.
        went_on: after the last step; None: it ended there.
        broke: what it failed with after them, outside of calls of the model and of saves; ""
            if it did not.
        epoch_batches: micro-batches of one pass over the training's data on a rank; None: not
            known.
        broke_in: what had begun last and was not seen to end then; None: nothing, or the data's
            own end broke it.
    """

    evaluations: int = 0
    evaluation_batches: int = 0
    checkpoints: int = 0
    saved_bytes: int = 0
    under_way: Aside | None = None
    before_steps: tuple[int, ...] = ()
    longest_batch: bool = False
    went_on: WentOn | None = None
    broke: str = ""
    broke_in: Aside | None = None
    epoch_batches: int | None = None


def of_all_ranks(asides: Sequence[Asides]) -> Asides | None:
    """The asides of all ranks of a launch as one; None if no rank reported any."""
    if not asides:
        return None
    ways = (WentOn.EPOCH, WentOn.EPOCH_END, WentOn.END)  # the least progress of all ranks
    broken = next((rank for rank in asides if rank.broke), Asides())
    return Asides(
        evaluations=max(rank.evaluations for rank in asides),
        evaluation_batches=max(rank.evaluation_batches for rank in asides),
        checkpoints=max(rank.checkpoints for rank in asides),
        saved_bytes=sum(rank.saved_bytes for rank in asides),
        under_way=next((rank.under_way for rank in asides if rank.under_way), None),
        before_steps=tuple(sorted({step for rank in asides for step in rank.before_steps})),
        longest_batch=all(rank.longest_batch for rank in asides),
        went_on=next((way for way in ways if any(r.went_on is way for r in asides)), None),
        broke=broken.broke,
        broke_in=broken.broke_in,
        epoch_batches=min((r.epoch_batches for r in asides if r.epoch_batches), default=None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """The last word of one rank of a trial, written whole or not at all.

    ``end_step`` is the step at which it ended as planned; None if it ended otherwise.
    ``phases`` are the mean seconds of a step's named phases, if a soak took it apart.
    ``cut`` is set if the first step was too long for its time; there are no ``steps`` then.
    ``asides`` is its work besides its steps, if there was any.

    A probe in an external script also says: ``caught``, an out of memory that the script caught
    before it went on; ``ended_early``, it was over by itself before the steps asked for (then
    ``end_step`` is its last); ``left_behind``, paths that its script wrote and left behind,
    from the working directory; ``notes``; ``crowded``, more processes than one have trained for
    it, besides or after each other.
    """

    rank: int
    world_size: int
    attempt: str
    ended_unix_s: float
    steps: tuple[StepRecord, ...] = ()
    failure: Failure | None = None
    applied: AppliedStrategy | None = None
    memory: MemoryUse | None = None
    flops_per_step: float | None = None
    end_step: int | None = None
    phases: tuple[tuple[str, float], ...] = ()
    cut: CutStep | None = None
    caught: Failure | None = None
    ended_early: bool = False
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asides: Asides | None = None
    crowded: bool = False


class Sign(str, Enum):
    """The probe's progress in any process of a launch."""

    INJECTED = "injected"
    """A Python of the launch read our ``sitecustomize``."""
    ARMED = "armed"
    """A Python of the launch imported torch, and the probe's hooks are installed."""
    BROKEN = "broken"
    """The probe could not be loaded or failed; the file says why."""
    STOP = "stop"
    """Holds the number of the optimizer step after which all ranks end."""
    HOLLOW = "hollow"
    """Set by the launcher: weights must be fake from their creation on."""
    NOT_FAKE = "not_fake"
    """The reason why a first forward pass could not be gone through on fake tensors."""
    OUT_OF_MEMORY = "out_of_memory"
    """The script ran out of memory before its first backward pass was over."""


def unfinished_sign(rank: int) -> str:
    """Name of the file that replaces in a soak the result of a rank that has not ended."""
    return f"unfinished_rank{rank}"


def compile_sign(process: int | str) -> str:
    """Name of the file with the seconds that a process has compiled, and since when it does."""
    return f"compiles_{process}"


def sign_path(task: RankTask, name: str) -> Path:
    """The file of a sign, or of any other ``name`` that belongs to this attempt."""
    return Path(task.folder, SIGNS_FOLDER, f"{name}.{task.attempt}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """``count`` operations that cost the same: FLOPs, and bytes read and written."""

    flops: float
    moved_bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """A model, or tensors, that a script keeps on the device besides the trained model.

    Attributes:
        name: class of the model; of plain tensors ``tensors``.
        parameters: 0 for plain tensors.
    """

    name: str
    parameters: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstForward:
    """A script's model, and the costs of a single forward and backward pass.

    Attributes:
        model: its blocks for one sample; without peaks and seconds.
        micro_batch: samples of the pass.
        fake: nothing was computed; False: on the CPU, with the script's real tensors.
        peaks: of each phase, with weights and gradients but without optimizer state; "optimizer"
            is there if its step was tried.
        operations: of forward and backward.
        frozen_operations: operations of calls without gradients, such as of a teacher.
        backward: whether the script came to a backward pass.
        optimizer: name of the class; None: none was made before the pass.
        state_bytes: size of the optimizer's state; None if its step could not be tried.
        wrapper: class of the module around the model, such as ``DistributedDataParallel``.
        config: ``model.config`` as JSON, if it has one as Hugging Face's models do.
        bystanders: other live memory on the device.
        left_behind: new paths in the working directory.
    """

    model: ModelSpec
    micro_batch: int
    fake: bool
    peaks: tuple[TracedPeak, ...] = ()
    operations: tuple[OperationCost, ...] = ()
    frozen_operations: tuple[OperationCost, ...] = ()
    backward: bool = True
    precision: Precision = Precision.FP32
    recompute: Recompute = Recompute.NONE
    optimizer: str | None = None
    state_bytes: int | None = None
    wrapper: str | None = None
    config: str | None = None
    bystanders: tuple[Bystander, ...] = ()
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


PREFILL, DECODE = "prefill", "decode"
"""Phases: all tokens of the input with the first one written, then one token after the other."""
INPUT_LEN, OUTPUT_LEN = "input_len", "output_len"
"""Extras of a candidate, in tokens of one sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTask:
    """A step of an inference search.

    Attributes:
        layout: tensor and pipeline ranks; its micro-batch has the sequences of the batch.
        input_len: tokens that are read.
        output_len: tokens that are written, no more and no fewer.
        precision: of weights, cache and products.
    """

    layout: Layout
    input_len: int
    output_len: int
    precision: Precision = Precision.FP32

    @property
    def candidate(self) -> Candidate:
        """The point as studies and journals know it."""
        extras = ((INPUT_LEN, self.input_len), (OUTPUT_LEN, self.output_len))
        return Candidate(layout=self.layout, extras=extras)
