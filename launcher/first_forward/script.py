"""A script up to its first forward pass, as a known architecture or its pieces.

A script whose model is unknown is laid out only by data parallelism.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.cost import forward_flops_per_token, parameters
from autoconf_launch.core import (
    FIRST_FORWARD_FILE,
    OPTIMIZER_STATES,
    Architecture,
    ConfigError,
    DecodeError,
    Failure,
    FailureKind,
    FirstForward,
    FrozenPasses,
    Mode,
    ModelSpec,
    NothingFeasibleError,
    Optimizer,
    RankTask,
    RawConfig,
    Recompute,
    Sign,
    TracedPeak,
    Workload,
    decode,
    sign_path,
)
from autoconf_launch.tuning_spaces import from_hugging_face, is_known_type

from ..engines import JobEnd, LocalEngine
from ..events import Listener, Note
from ..launch import probe_environment, read_log_tail, why_silent
from ..plan import LaunchPlan, RankPlan
from ..spelling import silent_variables

_NEAR = 0.005
"""Share of the weights that an architecture's formulas may be off by."""
_LOOK_S = 0.2
_SLOW_S = 10.0
"""After these seconds a listener is notified of the running script and its output."""
_MEMORY_SHARE = 0.9
"""Share of the free memory that the script and each of its forks may take."""
_KILLED = 128 + 9
_MEMORY = (
    "ran out of this machine's memory before its first forward and backward pass was over, also "
    "with fake weights; try it with a smaller batch, or where there is more memory."
)
_NO_GPU = (("CUDA_VISIBLE_DEVICES", ""), ("HIP_VISIBLE_DEVICES", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCommand:
    """The process of a script.

    Attributes:
        name: name of the script, for people.
        argv: words of the command.
        environment: variables beyond ours.
    """

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedScript:
    """A script with its model.

    Attributes:
        name: name of the script.
        architecture: known architecture with as many weights as were traced, else None.
        why_pieces: reason if it is None.
    """

    name: str
    found: FirstForward
    architecture: Architecture | None
    why_pieces: str = ""

    @property
    def optimizer(self) -> str:
        name = (self.found.optimizer or "").lower()
        if name == "sgd" and self.states:
            return "momentum"
        return name if name in OPTIMIZER_STATES else "adamw"

    @property
    def states(self) -> float:
        """Values that the optimizer keeps for each trained weight."""
        trained = self.found.model.trainable_parameters * self.found.model.parameter_bytes_each
        if self.found.state_bytes is None:
            return Optimizer.from_name(self.found.optimizer).states
        return int(self.found.state_bytes / trained + 0.5) if trained else 0

    @property
    def spec(self) -> ModelSpec:
        """The model with its peaks, the optimizer's state in them."""
        model = self.found.model
        state_bytes = int(self.states * model.trainable_parameters * model.parameter_bytes_each)
        peaks = tuple(
            replace(peak, peak_bytes=peak.peak_bytes + state_bytes)
            for peak in (*(self.found.peaks or self._forward_peaks()), *self._doubled_peaks())
            if peak.phase != "optimizer"
        )
        return replace(model, traced_peaks=peaks, vocabulary_size=None)

    @property
    def beside(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of memory that the script keeps on the device besides the training."""
        models = sum(one.size_bytes for one in self.found.bystanders if one.parameters)
        others = sum(one.size_bytes for one in self.found.bystanders if not one.parameters)
        parts = (("other models", models), ("other tensors", others))
        return tuple((name, size) for name, size in parts if size)

    @property
    def frozen_passes(self) -> FrozenPasses | None:
        if not (operations := self.found.frozen_operations):
            return None
        tokens = self.found.micro_batch * self.sequences_per_sample
        tokens *= self.found.model.sequence_length or 1
        return FrozenPasses(operations=operations, tokens=tokens)

    @property
    def sequences_per_sample(self) -> int:
        """Sequences of a known architecture that a sample trains, by the operations of the pass.

        A loss on pairs of answers trains two, in one call of the model or in two.
        """
        if self.architecture is None:
            return 1
        workload = Workload(
            model=self.architecture, sequence_length=self.found.model.sequence_length or 1
        )
        forward_flops = forward_flops_per_token(workload) * workload.sequence_length
        passes = 3 if self.found.recompute is Recompute.NONE else 4
        own, frozen = (
            sum(one.flops * one.count for one in operations)
            for operations in (self.found.operations, self.found.frozen_operations)
        )
        return max(1, round((own - frozen) / (passes * forward_flops * self.found.micro_batch)))

    def _forward_peaks(self) -> tuple[TracedPeak, ...]:
        """Peaks of a pass without a backward one: the weights, and values to keep for one."""
        model = self.found.model
        weights = int(model.parameters * model.parameter_bytes_each)
        return tuple(
            TracedPeak(
                phase="forward",
                micro_batch=samples,
                peak_bytes=weights + samples * model.activation_bytes_per_sample,
            )
            for samples in (1, 2)
        )

    def _doubled_peaks(self) -> tuple[TracedPeak, ...]:
        size = self.found.micro_batch
        if any(peak.micro_batch != size for peak in self.found.peaks):
            return ()
        model = self.found.model
        weights = int(model.parameters * model.parameter_bytes_each)
        gradients = int(model.trainable_parameters * model.parameter_bytes_each)
        fixed = {"forward": weights, "backward": weights + gradients}
        forward = next((p.peak_bytes for p in self.found.peaks if p.phase == "forward"), 0)
        return tuple(
            replace(
                peak,
                micro_batch=2 * size,
                peak_bytes=peak.peak_bytes
                + max(forward - weights, peak.peak_bytes - fixed.get(peak.phase, weights), 0),
            )
            for peak in self.found.peaks
        )


def trace_script(command: ScriptCommand, time_limit_s: float, listener: Listener) -> TracedScript:
    """Run the script up to its first forward pass; the listener gets a note on a slow script.

    Raises:
        NothingFeasibleError: it does not reach one.
    """
    return describe_script(command.name, first_forward(command, time_limit_s, listener))


def describe_script(name: str, found: FirstForward) -> TracedScript:
    """A script by its first forward pass, as an architecture if that is known."""
    architecture, why = _architecture(found, name)
    return TracedScript(name=name, found=found, architecture=architecture, why_pieces=why)


def _architecture(found: FirstForward, name: str) -> tuple[Architecture | None, str]:
    if found.config is None:
        return None, "its model has no configuration as Hugging Face's models have"
    document: dict[str, Any] = json.loads(found.config)
    config, kind = RawConfig(document), document.get("model_type")
    if not is_known_type(config):
        return None, f"model_type {kind!r} is not among those whose shapes are known"
    try:
        read = from_hugging_face(config, _title(document, name))
    except ConfigError as error:
        return None, str(error).rstrip(".")
    counted, expected = found.model.parameters, parameters(read)
    if abs(counted - expected) > _NEAR * counted:
        return None, (
            f"its model has {counted:,} weights, but a {kind} of its shapes has {expected:,}"
        )
    if found.model.trainable_parameters != counted:
        return None, "some of its weights are frozen"
    return read, ""


def _title(document: dict[str, Any], name: str) -> str:
    classes: Sequence[str] = document.get("architectures") or ()
    path = str(document.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    return path or (classes[0] if classes else f"{document.get('model_type')} of {name}")


def first_forward(command: ScriptCommand, time_limit_s: float, listener: Listener) -> FirstForward:
    """The model and batch that the script trains.

    If its model is too large for this machine, it is tried again with fake weights.

    Raises:
        NothingFeasibleError: it ends, fails or takes too long before its first forward pass.
    """
    try:
        return _attempt(command, time_limit_s, listener, hollow=False)
    except _OutOfMemoryError as error:
        try:
            return _attempt(command, time_limit_s, listener, hollow=True)
        except NothingFeasibleError as other:
            raise NothingFeasibleError(str(error), other.log_tail or error.log_tail) from None


class _OutOfMemoryError(NothingFeasibleError):
    """The script's own weights or batch are too large for this machine."""


def _attempt(
    command: ScriptCommand, time_limit_s: float, listener: Listener, *, hollow: bool
) -> FirstForward:
    with tempfile.TemporaryDirectory(prefix="autoconf-launch-") as name:
        folder = Path(name)
        task = RankTask(mode=Mode.FIRST_FORWARD, folder=name, attempt=uuid.uuid4().hex[:8])
        started_s = time.monotonic()
        plan = _plan(command, task, folder)
        if hollow:
            sign_path(task, Sign.HOLLOW.value).touch()
        end = _run(plan, folder, time_limit_s, listener)
        try:
            text = (folder / FIRST_FORWARD_FILE).read_text()
            return decode(FirstForward, json.loads(text))
        except (OSError, ValueError, RecursionError, DecodeError):
            took_s = time.monotonic() - started_s
            said = read_log_tail(folder)
            if _is_out_of_memory(task, end):
                raise _OutOfMemoryError(f"{command.name} {_MEMORY}", said) from None
            why = _why(task, end, min(took_s, time_limit_s))
            raise NothingFeasibleError(f"{command.name} {why}", said) from None


def _plan(command: ScriptCommand, task: RankTask, folder: Path) -> LaunchPlan:
    environment = (
        *silent_variables(str(folder)),
        *command.environment,
        *_NO_GPU,
        *probe_environment(task, folder),
    )
    rank = RankPlan(rank=0, local_rank=0, argv=command.argv, environment=environment)
    return LaunchPlan(
        name=command.name,
        ranks=(rank,),
        working_directory=str(Path.cwd()),
        folder=str(folder),
    )


def _run(plan: LaunchPlan, folder: Path, time_limit_s: float, listener: Listener) -> JobEnd | None:
    backend = LocalEngine()
    with _limited_memory():
        job = backend.submit(plan)
    began_s, slow_s, cancelled = time.monotonic(), _SLOW_S, False
    while True:
        backend.wait([job], _LOOK_S)
        end = backend.poll([job])[0]
        if end is not None:
            return None if cancelled else end
        took_s = time.monotonic() - began_s
        if took_s >= slow_s and not cancelled:
            listener(Note(text=_slow_text(plan.name, slow_s, folder)))
            slow_s = float("inf")
        over = (folder / FIRST_FORWARD_FILE).exists() or took_s > time_limit_s
        if over and not cancelled:
            cancelled = True
            detail = "all that was wanted is known, or the time is up"
            backend.cancel(job, Failure(kind=FailureKind.PREEMPTED, detail=detail))


def _slow_text(name: str, seconds: float, folder: Path) -> str:
    return (
        f"{name} has run for {seconds:g} s to reach its first forward and backward pass; its "
        f"output is in {folder} until it does."
    )


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Processes started inside may take most of the memory that is free, but not all of it."""
    kind = resource.RLIMIT_DATA
    soft, hard = resource.getrlimit(kind)
    wanted = int(_MEMORY_SHARE * _free_bytes())
    limits = [limit for limit in (wanted, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _free_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _is_out_of_memory(task: RankTask, end: JobEnd | None) -> bool:
    told = sign_path(task, Sign.OUT_OF_MEMORY.value).exists()
    return told or (end is not None and end.exit_code == _KILLED)


def _why(task: RankTask, end: JobEnd | None, took_s: float) -> str:
    broken = sign_path(task, Sign.BROKEN.value)
    if broken.exists():
        return f"could not be inspected: {broken.read_text(errors='replace')}"
    if end is None:
        return (
            f"made no forward pass with gradients within {took_s:.0f} s; raise --time-limit if it "
            "only needs longer to reach it."
        )
    if end.exit_code:
        return f"fails before its first forward pass (exit code {end.exit_code}); it says:"
    if sign_path(task, Sign.ARMED.value).exists():
        return (
            "does not train: it ended by itself, and no module with trainable weights was called "
            "with gradients; give the command that trains."
        )
    return f"does not train: {why_silent(task)}; give the command that trains."
