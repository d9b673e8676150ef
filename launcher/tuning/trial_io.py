"""The files around a trial: its request, and its outcome.

Each configuration has its own compile cache. torch.compile spends up to a minute on a first launch
that a second one saves. With torch's own cache, which all launches share, a candidate starts early
or late depending on earlier ones; with separate caches every first launch compiles, the baseline's
too, and repeats find their kernels ready.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoconf_launch.autotuner.cost import KernelTimes, estimate
from autoconf_launch.autotuner.measurement import EFFORTS, FEWEST_TIMED, measured_name
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    CandidateTable,
    FailedTrial,
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import (
    END_FILE,
    FIRST_FORWARD_FILE,
    MODEL_INFO_FILE,
    SAVED,
    STEPS_FILE,
    Asides,
    ClusterSpec,
    Mode,
    ModelSpec,
    RankTask,
    RawConfig,
    SecretFilter,
    Workload,
    decode,
    encode,
    result_file,
    take_in,
)
from autoconf_launch.tuning_spaces import known_accelerator, machine

from ..launch import adopt, in_trial, plan_launch, variables_of_user
from ..plan import LaunchPlan
from ..report import label
from ..request import LaunchRequest
from ..results import (
    METRICS_FILE,
    ResultsPaths,
    document_without_secrets,
    dotenv_words,
    known_secrets,
    named_values,
    shell_command,
    text_without_secrets,
    write_plain,
    write_private,
)
from ..script import ScriptSource
from ..spelling import Dialect, Rendered, TrialNeeds, document_values
from .job import TuningJob

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Triton's cache is below it, unless the user has set its variable."""
BACKWARD_AND_FORWARD = 3.0
"""Model FLOPs of a step over its forward pass; recomputation is not counted."""
_TERA = 1e12
_FAILURE = "failure.json"
_OF_AN_ATTEMPT = (
    *(STEPS_FILE, MODEL_INFO_FILE, FIRST_FORWARD_FILE, END_FILE),
    *(METRICS_FILE, _FAILURE),
)
"""Files that would be mistaken for the next attempt's, besides results of ranks."""
_BYTES_PER_PARAMETER = 16
"""Bytes of a checkpoint: weights and both moments of Adam in fp32, and a third to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFiles:
    """The trials of a folder: writes each one's files and makes its plan.

    Attributes:
        workload: with the model, for predictions and FLOP counts; None: not known.
        untimed: micro-batch times if the profile run timed none.
        bound: steps of each trial, unless its decider ends it before, and the duration in seconds
            beyond which a first step is measured by its micro-batches.
        caches: compile caches of these trials.
    """

    request: LaunchRequest
    cluster: ClusterSpec
    paths: ResultsPaths
    source: ScriptSource
    dialect: Dialect
    settings: AutotuningSettings
    workload: Workload | None = None
    untimed: KernelTimes | None = None
    bound: tuple[int, float] | None = None
    caches: CompileCaches = field(default_factory=lambda: CompileCaches())

    @staticmethod
    def of_job(job: TuningJob, untimed: KernelTimes | None = None) -> TrialFiles:
        """The files of a tuning run's trials, below the job's results folder."""
        return TrialFiles(
            request=job.request,
            cluster=job.cluster,
            paths=job.paths,
            source=job.source,
            dialect=job.dialect,
            settings=job.user.settings,
            workload=job.workload,
            untimed=untimed,
        )

    @property
    def _spec(self) -> ModelSpec | None:
        model = self.workload and self.workload.model
        return model if isinstance(model, ModelSpec) else None

    def plan_profile(
        self, baseline: Trial, attempt: str, *, is_second: bool = False
    ) -> LaunchPlan:
        """The plan of the profile run, in its own folder; a second run has another folder."""
        folder = self.paths.second_profile if is_second else self.paths.profile
        return self._plan(folder, baseline, attempt, Mode.PROFILE)

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """The plan of a trial; its experiment, configuration and command are written."""
        return self._plan(self.paths.trial(trial.name), trial, attempt, Mode.MEASURE)

    def render(self, trial: Trial, config_path: Path) -> Rendered:
        """The candidate as the script's framework spells it."""
        return self.dialect.render(trial.candidate, self.source, str(config_path))

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        task = self._task(self.paths.trial(trial.name), trial, attempt, Mode.MEASURE)
        world_size = None if self.request.alone else len(self.cluster.devices)
        checked = self.render(trial, self.paths.config(self.paths.trial(trial.name))).checked
        return adopt(task, world_size=world_size, expected=trial.candidate, checked=checked)

    def predict(self, trial: Trial) -> Prediction | None:
        if self.workload is None:
            return None
        table = CandidateTable.from_candidates((trial.candidate,))
        found = estimate(table, self.workload, self.cluster, untimed=self.untimed)
        return found.row(0)

    def complete(self, outcome: Outcome) -> Outcome:
        """Add facts that ranks cannot know; errors show no secret.

        These are the memory that was free when the tune began, which bounds every trial's, and the
        FLOPs of a step, counted once in the profile run.
        """
        if memory := outcome.memory:
            limit_bytes = min(memory.limit_bytes, self.cluster.least_memory_bytes)
            outcome = replace(outcome, memory=replace(memory, limit_bytes=limit_bytes))
        known = self._secrets
        if outcome.asides is not None:
            shown = decode(Asides, known.document(encode(outcome.asides)))
            outcome = replace(outcome, asides=shown)
        if isinstance(outcome, FailedTrial):
            failure = outcome.failure
            detail, tail = known.text(failure.detail), tuple(map(known.text, failure.log_tail))
            return replace(outcome, failure=replace(failure, detail=detail, log_tail=tail))
        if not isinstance(outcome, Measurement):
            return outcome
        if self._spec and not outcome.flops_per_step:
            forward = self._spec.forward_flops_per_sample * outcome.samples_per_step
            outcome = replace(outcome, flops_per_step=BACKWARD_AND_FORWARD * forward or None)
        return replace(outcome, above_peak=bool(why_impossible(outcome, self.cluster)))

    @property
    def _secrets(self) -> SecretFilter:
        variables = {**os.environ, **variables_of_user(self.request, self.cluster)}
        values = (self.source.config, document_values(self.source))
        words = (word for document in values for word in named_values(document))
        texts = (f"\n{file.text}" for file in self.source.files)
        return known_secrets((*self.request.argv, *words, *texts, *dotenv_words()), variables)

    def finish(self, record: Record) -> None:
        folder = self.paths.trial(record.trial.name)
        self.paths.make_launch_folder(folder)
        clear_saved(folder)
        if record.measurement:
            found = metrics(record.measurement)
            if why := why_impossible(record.measurement, self.cluster):
                found["impossible"] = why
            write_json(folder / METRICS_FILE, found)
        elif record.failure:
            write_json(folder / _FAILURE, encode(record.failure))

    def _plan(self, folder: Path, trial: Trial, attempt: str, mode: Mode) -> LaunchPlan:
        self.paths.make_launch_folder(folder)
        take_in(folder, is_ours=False)
        world_size = len(self.cluster.devices)
        for name in (*_OF_AN_ATTEMPT, *map(result_file, range(world_size))):
            (folder / name).unlink(missing_ok=True)
        task = self._task(folder, trial, attempt, mode)
        config_path = self.paths.config(folder)
        rendered = self.render(trial, config_path)
        if any(knob == "micro_batch" for knob, _ in rendered.checked or ()):
            task = replace(task, micro_batch=trial.candidate.layout.micro_batch)
        needs = needs_of(task, trial, self._spec)
        rendered = in_trial(self.dialect, rendered, self.source, task=task, needs=needs)
        variables = variables_of_user(self.request, self.cluster)
        caches = () if VARIABLE in variables else self.caches.variables(folder.name)
        known = self._secrets
        environment = (*rendered.environment, *caches, *known.to_environment())
        rendered = replace(rendered, environment=environment)
        expected = trial.candidate if mode is Mode.MEASURE else None
        plan = plan_launch(self.request, self.cluster, rendered, task=task, expected=expected)
        plan = replace(plan, private_files=tuple(_write_private(config_path, rendered, known)))
        self._describe(folder, trial, rendered, plan)
        return plan

    def _task(self, folder: Path, trial: Trial, attempt: str, mode: Mode) -> RankTask:
        first, last = self.settings.start_profile_step, self.settings.end_profile_step
        task = RankTask(
            mode=mode,
            folder=str(folder),
            attempt=attempt,
            start_step=first,
            end_step=last,
            memory_limit_bytes=emulated_limit_bytes(self.cluster),
        )
        if trial.turn is not None:
            next_folder = str(self.paths.trial(trial.turn.next_name))
            task = replace(
                task,
                next_folder=next_folder,
                first_turn=trial.turn.is_first,
                turn_steps=trial.turn.length,
            )
        if trial.is_soak:
            return soak_task(task, trial, self._spec)
        if mode is not Mode.MEASURE or are_steps_given(self.settings):
            return task
        if trial.final or trial.again:
            return replace(task, end_step=first - 1 + repeated_steps(trial))
        if self.bound:
            most, cut_s = self.bound
            start = min(first, most)
            return replace(task, start_step=start, end_step=most, most_steps=most, cut_s=cut_s)
        return replace(task, most_steps=EFFORTS[self.settings.effort].most_steps)

    def _describe(self, folder: Path, trial: Trial, rendered: Rendered, plan: LaunchPlan) -> None:
        experiment = {
            "name": folder.name,
            "ds_config": document_without_secrets(rendered.config.to_dict()),
            "num_gpus": len(self.cluster.devices),
            "num_nodes": len(self.cluster.nodes),
        }
        write_json(self.paths.experiment(folder.name), experiment)
        write_json(folder / "exp.json", {**experiment, "exp_id": trial.number})
        write_plain(folder / "cmd.txt", f"{shell_command(plan.ranks[0].argv)}\n")


def _write_private(
    config_path: Path, rendered: Rendered, known: SecretFilter
) -> Iterator[tuple[str, str]]:
    """Write the configuration files of a trial; see :attr:`LaunchPlan.private_files`."""
    shown = RawConfig(document_without_secrets(rendered.config.to_dict()))
    texts = [(config_path, rendered.config.to_json() + "\n", shown.to_json() + "\n")]
    for file in rendered.files:
        path = config_path.with_name(file.name)
        texts.append((path, file.text, text_without_secrets(file.text)))
    for path, text, left in texts:
        write_private(path, text)
        if (left := known.text(left)) != text:
            yield str(path), left


def why_impossible(measurement: Measurement, cluster: ClusterSpec) -> str:
    """A sentence on FLOPS of all ranks above the peak of their GPUs; empty if there is none."""
    names = {device.name for device in cluster.devices}
    known = [found for name in names if (found := known_accelerator(name))]
    if measurement.flops_per_step is None or len(known) < len(names):
        return ""
    peak, gpu = max((_peak_flops_per_s(name), name) for name in known)
    gpus = min(measurement.world_size, len(cluster.devices))
    made = measurement.flops_per_step / measurement.mean_step_s / gpus
    if made <= peak:
        return ""
    return (
        f"{made / _TERA:,.0f} TFLOP/s per GPU is above the peak of {gpu} "
        f"({peak / _TERA:,.0f} TFLOP/s) and cannot be right: the steps had fewer FLOPs "
        "than were counted, or their time is wrong. Check that each step trains on its whole "
        "batch. Trials are ranked by samples per second, which do not use this count."
    )


def impossible_flops(records: Iterable[Record], cluster: ClusterSpec) -> str:
    """A sentence on the highest FLOPS, if they are above the GPU's peak; empty otherwise."""
    flops = {
        record.measurement.flops_per_gpu_per_s or 0.0: record
        for record in records
        if record.measurement
    }
    if not flops:
        return ""
    highest = flops[max(flops)]
    assert highest.measurement is not None
    why = why_impossible(highest.measurement, cluster)
    return why and f"{label(highest.trial.candidate)}: {why}"


def _peak_flops_per_s(gpu: str) -> float:
    rates = machine(gpu).accelerator
    return max(rates.half_flops_per_s, rates.fp8_flops_per_s or 0.0, rates.fp4_flops_per_s or 0.0)


def repeated_steps(trial: Trial) -> int:
    """Timed steps of a repeat."""
    return trial.turn.steps if trial.turn else max(FEWEST_TIMED, trial.timed_steps)


def emulated_limit_bytes(cluster: ClusterSpec) -> int | None:
    """The limit that ranks set for themselves; None if the device has its own."""
    emulated = any(device.emulated for device in cluster.devices)
    return cluster.least_memory_bytes if emulated else None


def are_steps_given(settings: AutotuningSettings) -> bool:
    """True if the user sets the timed steps; then every trial makes exactly these."""
    return bool({"start_profile_step", "end_profile_step"} & settings.model_fields_set)


def metrics(measurement: Measurement) -> dict[str, object]:
    """Content of ``metrics.json``: samples/s, ms per optimizer step, FLOP/s of each rank.

    ``steps`` has the first and the last timed step.
    """
    first, made = measurement.first_step, measurement.extrapolated_from
    last = None if first is None else first + len(measurement.step_s) - 1
    return {
        "steps": None if first is None else [first, last],
        "throughput": measurement.throughput_per_s,
        "latency": measurement.latency_ms,
        "FLOPS_per_gpu": measurement.flops_per_gpu_per_s,
        **({} if made is None else {"extrapolated_from_micro_batches": made}),
    }


def write_json(path: Path, document: object) -> None:
    """Write indented JSON with a last newline."""
    write_plain(path, json.dumps(document, indent=2) + "\n")


class CompileCaches:
    """Folders on the local disk of each host; this machine's live as long as this object.

    A results folder is often on a network disk, which is slow with thousands of small files.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    def variables(self, launch: str) -> tuple[tuple[str, str], ...]:
        """Variables of a launch's ranks, by its name; none if the user chose a cache."""
        if VARIABLE in os.environ:
            return ()
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="autoconf_launch_compiled_"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        name = measured_name(launch.removesuffix(SOAK_SUFFIX))
        return ((VARIABLE, str(self._root / name)),)


def needs_of(task: RankTask, trial: Trial, spec: ModelSpec | None) -> TrialNeeds:
    """The requirements of this launch; a second attempt at a verification run is like a trial."""
    steps = task.most_steps or task.end_step
    is_first = trial.is_soak and trial.attempt == 1 and task.mode is Mode.MEASURE
    return TrialNeeds(
        folder=task.folder,
        steps=steps,
        accumulation=trial.candidate.layout.accumulation,
        evaluates=is_first,
        saves=is_first and _has_room(Path(task.folder), spec),
    )


def soak_task(task: RankTask, trial: Trial, spec: ModelSpec | None) -> RankTask:
    """The task of a verification run: its steps and, in a first attempt, an epoch's end.

    Files that the script would save after an epoch must have room.
    """
    return replace(
        task,
        start_step=min(task.start_step, trial.soak_steps),
        end_step=trial.soak_steps,
        soak=True,
        ends_epoch=trial.attempt == 1 and _has_room(Path(task.folder), spec),
    )


def clear_saved(folder: Path) -> None:
    """Remove files that the script of a trial saved: they can be gigabytes."""
    take_in(folder, is_ours=True)
    output = TrialNeeds(folder=str(folder), steps=0).output
    for path in (output, folder / SAVED):
        shutil.rmtree(path, ignore_errors=True)


def _has_room(folder: Path, spec: ModelSpec | None) -> bool:
    """True if a checkpoint has room on the disk of the results; unknown sizes have."""
    with suppress(OSError):
        wanted = _BYTES_PER_PARAMETER * (spec.parameters if spec else 0)
        return shutil.disk_usage(folder).free > wanted
    return True
