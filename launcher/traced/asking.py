"""Flags and a script to one question: the flags with what the script says filled in.

Not: the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.cost.training_setup import OPTIMIZER_BYTES
from autoconf_launch.core import (
    NATIVE_PRECISIONS,
    ClusterSpec,
    ConfigError,
    Offload,
    Precision,
    Recompute,
)

from ..planner.cluster_choice import choose_cluster
from ..planner.fit_flags import FitRequest, parse_fit
from ..planner.plan_flags import PlanRequest, parse_plan
from ..planner.training_flags import TrainingRequest
from .command import ScriptCommand, script_command
from .rows import Asked
from .script import TracedScript, traced

_ANY = ("--seq", "1", "--global-batch", "1")
"""Stands for what is not known yet, so that the other flags are checked before the script runs."""
_STAGES = {"FullyShardedDataParallel": 3}
_WEIGHT_BYTES = 4


def ask_fit(
    own: Sequence[str], words: Sequence[str]
) -> tuple[FitRequest, TracedScript, ClusterSpec]:
    """Check the flags, run the script up to its first forward pass, and fill the flags in.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    cluster, command, limit_s = _checked(parse_fit([*_ANY, *own]).training, words)
    script = traced(command, limit_s)
    found = script.found
    request = parse_fit(
        [
            *_filled(script, 1),
            *("--micro-batch", str(found.micro_batch), "--recompute", found.recompute.value),
            *("--zero", str(_STAGES.get(found.wrapper or "", 0))),
            *own,
        ]
    )
    if not _is_given(own, "--global-batch"):
        others = request.tensor * request.pipeline * request.context
        once = request.micro_batch * max(1, len(cluster.devices) // others)
        request = replace(request, training=replace(request.training, global_batch=once))
    if script.architecture is None:
        check_pieces(own, script, request)
    return request, script, cluster


def ask_plan(
    own: Sequence[str], words: Sequence[str]
) -> tuple[PlanRequest, TracedScript, ClusterSpec]:
    """The same for ``plan``.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    cluster, command, limit_s = _checked(parse_plan([*_ANY, *own]).training, words)
    script = traced(command, limit_s)
    request = parse_plan([*_filled(script, len(cluster.devices)), *own])
    if script.architecture is None:
        check_pieces(own, script, None)
    return request, script, cluster


def pieces_question(
    training: TrainingRequest, own: Sequence[str], script: TracedScript, cluster: ClusterSpec
) -> Asked:
    """What the rows of a script's layouts share.

    Raises:
        ConfigError: another precision than our runtime has.
    """
    given = _is_given(own, "--optimizer")
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


def _filled(script: TracedScript, data_parallel: int) -> list[str]:
    """What the script says; the user's own flags stand behind it, and count."""
    found = script.found
    return [
        *("--seq", str(found.model.sequence_length or 1)),
        *("--global-batch", str(found.micro_batch * data_parallel)),
        *("--precision", found.precision.value),
        *("--optimizer", script.optimizer),
    ]


def _is_given(own: Sequence[str], flag: str) -> bool:
    return any(word.partition("=")[0].replace("_", "-") == flag for word in own)


_ARCHITECTURE_ALONE = (
    *("--seq", "--tp", "--pp", "--vpp", "--cp", "--ep", "--sequence-parallel", "--offload"),
    *("--recompute-layers", "--lora-rank", "--freeze", "--compile", "--flash-attention"),
    *("--trainer", "--csv", "--explain", "--tokens", "--objective"),
)


def check_pieces(own: Sequence[str], script: TracedScript, request: FitRequest | None) -> None:
    """Refuse what only a known architecture answers; degrees of 1 ask for nothing.

    Raises:
        ConfigError: a flag does.
    """
    harmless = set() if request is None else _without_effect(request)
    for flag in _ARCHITECTURE_ALONE:
        if _is_given(own, flag) and flag not in harmless:
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
    if precision not in NATIVE_PRECISIONS:
        known = " ".join(kind.value for kind in NATIVE_PRECISIONS)
        raise ConfigError(
            f"--precision {precision.value} needs a model whose architecture is known; "
            f"for this script: {known}."
        )
    return precision
