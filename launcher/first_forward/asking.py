"""A request and a script to one question: what no flag said is filled in from the script.

Not: the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.cost import OPTIMIZER_BYTES
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    ClusterSpec,
    ConfigError,
    Offload,
    Precision,
    Recompute,
)

from ..estimates import FitRequest, PlanRequest, TrainingRequest, choose_cluster
from .answers import Asked
from .command import ScriptCommand, script_command
from .script import TracedScript, traced

_STAGES = {"FullyShardedDataParallel": 3}
_WEIGHT_BYTES = 4


def ask_fit(
    asked: FitRequest, words: Sequence[str]
) -> tuple[FitRequest, TracedScript, ClusterSpec]:
    """Run the script up to its first forward pass, and fill in what no flag said.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    cluster, command, limit_s = _checked(asked.training, words)
    script = traced(command, limit_s)
    request = _fit_of(asked, script, len(cluster.devices))
    if script.architecture is None:
        check_pieces(request.training, script, request)
    return request, script, cluster


def ask_plan(
    asked: PlanRequest, words: Sequence[str]
) -> tuple[PlanRequest, TracedScript, ClusterSpec]:
    """The same for ``plan``.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    cluster, command, limit_s = _checked(asked.training, words)
    script = traced(command, limit_s)
    batch = script.found.micro_batch * len(cluster.devices)
    request = replace(asked, training=_training_of(asked.training, script, batch))
    if script.architecture is None:
        check_pieces(request.training, script, None)
    return request, script, cluster


def _fit_of(asked: FitRequest, script: TracedScript, world: int) -> FitRequest:
    """Layers to recompute are in full, whatever the script does."""
    given, found = asked.training.given, script.found
    keeps_recompute = given & {"--recompute", "--recompute-layers"}
    size = asked.micro_batch if "--micro-batch" in given else found.micro_batch
    batch = size * max(1, world // (asked.tensor * asked.pipeline * asked.context))
    return replace(
        asked,
        training=_training_of(asked.training, script, batch),
        zero=asked.zero if "--zero" in given else _STAGES.get(found.wrapper or "", 0),
        micro_batch=size,
        recompute=asked.recompute if keeps_recompute else found.recompute,
    )


def _training_of(asked: TrainingRequest, script: TracedScript, batch: int) -> TrainingRequest:
    """What the script says, where no flag says otherwise."""
    given, found = asked.given, script.found
    return replace(
        asked,
        sequence=asked.sequence if "--seq" in given else found.model.sequence_length or 1,
        global_batch=asked.global_batch if "--global-batch" in given else batch,
        precision=asked.precision if "--precision" in given else found.precision,
        optimizer=asked.optimizer if "--optimizer" in given else script.optimizer,
    )


def pieces_question(
    training: TrainingRequest, script: TracedScript, cluster: ClusterSpec
) -> Asked:
    """What the rows of a script's layouts share.

    Raises:
        ConfigError: another precision than our runtime has.
    """
    given = "--optimizer" in training.given
    states = round(OPTIMIZER_BYTES[training.optimizer] / _WEIGHT_BYTES) if given else script.states
    return Asked(
        script=script,
        cluster=cluster,
        precision=_precision(training),
        states=states,
        limit_bytes=training.memory_bytes or cluster.least_memory_bytes,
    )


def _checked(
    training: TrainingRequest, words: Sequence[str]
) -> tuple[ClusterSpec, ScriptCommand, float]:
    """All that can be wrong before the script runs."""
    given = ["model"] if training.model is not None else []
    given += [name.replace("_", "-") for name, value in training.shapes if value is not None]
    if given:
        raise ConfigError(
            f"--{given[0]} and the command after -- both say what the model is; leave one out."
        )
    return choose_cluster(training.cluster), script_command(words), training.time_limit_s


_ARCHITECTURE_ALONE = (
    *("--seq", "--tp", "--pp", "--vpp", "--cp", "--ep", "--sequence-parallel", "--offload"),
    *("--recompute-layers", "--lora-rank", "--freeze", "--compile", "--flash-attention"),
    *("--trainer", "--csv", "--explain", "--tokens", "--objective"),
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
                "leave it out: data parallelism, ZeRO and recomputation are answered."
            )
    if request is not None and request.recompute is Recompute.SELECTIVE:
        raise ConfigError(
            "--recompute selective needs a model whose architecture is known; take none or full."
        )


def _without_effect(request: FitRequest) -> set[str]:
    """Flags whose values ask for nothing."""
    degrees = {
        "--tp": request.tensor,
        "--pp": request.pipeline,
        "--vpp": request.virtual,
        "--cp": request.context,
        "--ep": request.expert,
    }
    found = {flag for flag, degree in degrees.items() if degree == 1}
    return found | ({"--offload"} if request.offload is Offload.NONE else set())


def _precision(training: TrainingRequest) -> Precision:
    precision = training.precision
    if precision not in BUILTIN_PRECISIONS:
        known = " ".join(kind.value for kind in BUILTIN_PRECISIONS)
        raise ConfigError(
            f"--precision {precision.value} needs a model whose architecture is known; "
            f"for this script: {known}."
        )
    return precision
