"""A request and a script to one question: what no flag said is filled in from the script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.cost import (
    TrainerChoice,
)
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    ConfigError,
    Offload,
    Optimizer,
    Recompute,
)
from autoconf_launch.tuning_spaces import trainer

from ..dialects import choose_dialect
from ..estimates import BY_SCRIPT, FitRequest, PlanRequest, TrainingRequest
from ..events import Event, Note
from ..results import terminal_text
from .answers import traced_factor
from .command import script_command, script_source
from .script import TracedScript, trace_script

_STAGES = {"FullyShardedDataParallel": 3}


def ask_fit(asked: FitRequest, words: Sequence[str]) -> tuple[FitRequest, TracedScript]:
    """Run the script up to its first forward pass, and fill in what no flag said.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    script = trace_script(script_command(words), asked.training.time_limit_s, _write_note)
    request = _fit_of(asked, script, _accumulation(words, script, asked.training))
    if script.architecture is None:
        check_pieces(request.training, script, request)
    return request, script


def ask_plan(asked: PlanRequest, words: Sequence[str]) -> tuple[PlanRequest, TracedScript]:
    """Run the script up to its first forward pass, for ``plan``.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    script = trace_script(script_command(words), asked.training.time_limit_s, _write_note)
    once = script.found.micro_batch * _accumulation(words, script, asked.training)
    batch = once * len(asked.training.cluster.devices)
    request = replace(asked, training=_training_of(asked.training, script, batch))
    if script.architecture is None:
        check_pieces(request.training, script, None)
        if request.others:
            raise ConfigError(
                "Several clusters are compared for a model whose architecture is known, but "
                f"{script.why_pieces}; give one --cluster."
            )
    return request, script


def _write_note(event: Event) -> None:
    """Show a note on our errors, as our output is the answer."""
    if isinstance(event, Note):
        sys.stderr.write(f"{terminal_text(event.text)}\n")
        sys.stderr.flush()


def _accumulation(words: Sequence[str], script: TracedScript, asked: TrainingRequest) -> int:
    """Micro-batches of a step as the script's arguments say; 1 where they say another batch."""
    try:
        source = script_source(words)
        ranks = len(asked.cluster.devices)
        user = choose_dialect(source).dialect.read(source, world_size=ranks)
    except ConfigError:
        return 1
    layout = user.baseline.layout
    return layout.accumulation if layout.micro_batch == script.found.micro_batch else 1


def _fit_of(asked: FitRequest, script: TracedScript, accumulation: int) -> FitRequest:
    """Layers to recompute are in full, whatever the script does."""
    given, found, layout = asked.training.given, script.found, asked.layout
    keeps_recompute = given & {"--recompute", "--recompute-layers"}
    size = layout.micro_batch if "--micro-batch" in given else found.micro_batch
    tensor, pipeline, context, _ = layout.mesh
    replicas = len(asked.training.cluster.devices) // (tensor * pipeline * context)
    batch = size * accumulation * max(1, replicas)
    layout = replace(
        layout,
        zero_stage=layout.zero_stage if "--zero" in given else _STAGES.get(found.wrapper or "", 0),
        micro_batch=size,
        recompute=layout.recompute if keeps_recompute else found.recompute,
    )
    training = _training_of(asked.training, script, batch)
    return replace(asked, training=training, layout=layout, is_zero_open=False)


def _training_of(asked: TrainingRequest, script: TracedScript, batch: int) -> TrainingRequest:
    """What the script says, where no flag says otherwise."""
    given, found, own = asked.given, script.found, asked.workload
    length = found.model.sequence_length or 1
    choice = asked.trainer if "--trainer" in given else _trainer_of(script)
    software = trainer(choice.name).software
    if "--flash-attention" in given or "--no-flash-attention" in given:
        software = replace(software, flash_attention=own.software.flash_attention)
    workload = replace(
        own,
        model=script.architecture or own.model,
        sequence_length=own.sequence_length if "--seq" in given else length,
        global_batch=own.global_batch if "--global-batch" in given else batch,
        precision=own.precision if "--precision" in given else found.precision,
        optimizer=own.optimizer
        if "--optimizer" in given
        else Optimizer.from_name(script.optimizer),
        software=replace(
            software,
            compiled=own.software.compiled,
            weight_bytes=found.model.parameter_bytes_each,
        ),
        beside=script.beside,
        frozen_passes=script.frozen_passes,
    )
    training = replace(asked, workload=workload, trainer=choice)
    if script.architecture is None or choice.name != "huggingface":
        return training
    factor = traced_factor(script, training)
    return replace(training, workload=replace(workload, activation_factor=factor))


def _trainer_of(script: TracedScript) -> TrainerChoice:
    """The code that trains in the script; pieces are laid out as our own runtime does."""
    if script.architecture is None:
        return TrainerChoice(name="native", why="default for a model known by its pieces")
    wrapper = script.found.wrapper or ""
    name = "deepspeed" if wrapper == "DeepSpeedEngine" else "huggingface"
    return TrainerChoice(name=name, why=BY_SCRIPT)


_ARCHITECTURE_ALONE = (
    *("--seq", "--tp", "--pp", "--vpp", "--cp", "--ep", "--sequence-parallel", "--offload"),
    *("--recompute-layers", "--lora-rank", "--weights", "--freeze", "--compile"),
    *("--flash-attention", "--trainer", "--tokens", "--objective", "--gpus-needed"),
)


def check_pieces(
    training: TrainingRequest, script: TracedScript, request: FitRequest | None
) -> None:
    """Refuse what only a known architecture answers; degrees of 1 ask for nothing.

    Raises:
        ConfigError: a flag does.
    """
    harmless = set() if request is None else _without_effect(request)
    for flag in _ARCHITECTURE_ALONE:
        if flag in training.given and flag not in harmless:
            raise ConfigError(
                f"{flag} needs a model whose architecture is known, but {script.why_pieces}; "
                "omit it: only data parallelism, ZeRO and recomputation can be predicted."
            )
    if request is not None and request.layout.recompute is Recompute.SELECTIVE:
        raise ConfigError(
            "--recompute selective needs a model whose architecture is known; use none or full."
        )
    if training.workload.precision.configured not in BUILTIN_PRECISIONS:
        known = " ".join(kind.value for kind in BUILTIN_PRECISIONS)
        raise ConfigError(
            f"--precision {training.workload.precision.value} needs a model whose architecture is "
            f"known; for this script: {known}."
        )


def _without_effect(request: FitRequest) -> set[str]:
    """Flags whose values ask for nothing."""
    layout = request.layout
    sizes = (*layout.mesh, layout.virtual_pipeline)
    flags = zip(("--tp", "--pp", "--cp", "--ep", "--vpp"), sizes, strict=True)
    harmless = {flag for flag, size in flags if size == 1}
    return harmless | ({"--offload"} if layout.offload is Offload.NONE else set())
