"""Questions of ``fit`` and ``plan`` to requests: names become models, clusters and trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from autoconf_launch.core import (
    ALL_LAYERS,
    Architecture,
    ConfigError,
    Degrees,
    Dispatcher,
    FrozenPart,
    GradientSum,
    Layout,
    Loss,
    Offload,
    Optimizer,
    Precision,
    Software,
    States,
    WeightFormat,
    Workload,
)
from autoconf_launch.tuning_spaces import (
    SCHEDULES,
    known_accelerator,
    preset,
    unknown_gpu,
)

from ..asked import (
    FitCommand,
    FitQuestion,
    OnScreen,
    PlanCommand,
    PlanFiles,
    PlanQuestion,
    TrainingBudget,
    TrainingQuestion,
    VerbQuestion,
    read_flags,
    with_known_flags,
)
from .clusters import choose_cluster, limit_memory, on_fabric
from .models import model_of_flags
from .requests import TIME_LIMIT_S, FitRequest, PlanRequest, TrainingRequest
from .trainers import with_trainer

_BY_SCRIPT = {"seq": 1, "global_batch": 1}
"""Values that a script gives once it has run."""
_PRESET = "--preset"


def parse_fit(arguments: Sequence[str], *, of_script: bool = False) -> FitRequest:
    """Read the flags; those that a script says are not required of a script.

    Raises:
        ConfigError: an unknown flag, name or value, or a number that is out of range.
    """
    asked = read_flags(FitCommand, arguments, _BY_SCRIPT if of_script else {})
    return fit_request(asked, of_script=of_script)


def parse_plan(arguments: Sequence[str], *, of_script: bool = False) -> PlanRequest:
    """Read the flags; those that a script says are not required of a script.

    Raises:
        ConfigError: an unknown flag, name or value, a number out of range, or a limit without
            tokens.
    """
    words, degrees = _with_preset(with_known_flags(PlanCommand.parser(), arguments))
    asked = read_flags(PlanCommand, words, _BY_SCRIPT if of_script else {})
    return replace(plan_request(asked, of_script=of_script), degrees=degrees)


def fit_request(asked: FitQuestion, *, of_script: bool = False) -> FitRequest:
    """A question with its names resolved.

    Raises:
        ConfigError: an unknown name, a file that cannot be read, a shape that is missing.
    """
    samples = tuple(asked.micro_batch_split or ()) or None
    layout = Layout(
        tensor_parallel=asked.tp,
        pipeline_parallel=asked.pp,
        virtual_pipeline=asked.vpp,
        context_parallel=asked.cp,
        expert_parallel=asked.ep,
        zero_stage=asked.zero or 0,
        micro_batch=sum(samples) // len(samples) if samples else asked.micro_batch,
        recompute=asked.recomputes(),
        offload=Offload(asked.offload),
        sequence_parallel=bool(asked.sequence_parallel),
        placement=tuple(asked.placement or ()) or None,
        pipeline_split=tuple(asked.pipeline_split or ()) or None,
        micro_batch_split=samples,
    )
    return FitRequest(
        training=_trainings(asked, [asked.cluster], of_script=of_script)[0],
        layout=layout,
        recompute_layers=asked.recompute_layers or ALL_LAYERS,
        is_sequence_open=asked.sequence_parallel is None,
        is_zero_open=asked.zero is None,
    )


def plan_request(asked: PlanQuestion, *, of_script: bool = False) -> PlanRequest:
    """A question with its names resolved.

    Raises:
        ConfigError: an unknown name, a file that cannot be read, a shape that is missing, a price
            of a GPU that the cluster lacks.
    """
    trainings = _trainings(asked, asked.clusters, of_script=of_script, runnable=asked.runnable)
    same = same_values(asked, PlanRequest)
    same["budget"] = TrainingBudget(**same_values(asked, TrainingBudget))
    if isinstance(asked, PlanFiles):
        same["prices"] = _named_prices(asked.prices)
        _require_in_cluster(same["prices"], trainings)
    return PlanRequest(training=trainings[0], others=trainings[1:], **same)


def same_values(asked: VerbQuestion, kind: type) -> dict[str, Any]:
    """Values of a question for the parameters that a request has by the same name."""
    names = {one.name for one in fields(kind) if one.init} & {one.name for one in fields(asked)}
    return {name: getattr(asked, name) for name in names}


def _trainings(
    asked: TrainingQuestion, clusters: Sequence[str], *, of_script: bool, runnable: bool = False
) -> tuple[TrainingRequest, ...]:
    """The training on each cluster, with one trainer."""
    return with_trainer(
        [_training(asked, text, of_script=of_script) for text in clusters],
        asked.trainer,
        flash_attention=asked.flash_attention,
        runnable=runnable,
    )


def _training(asked: TrainingQuestion, cluster_text: str, *, of_script: bool) -> TrainingRequest:
    """The training on one cluster; its trainer is still open."""
    screen = asked if isinstance(asked, OnScreen) else OnScreen()
    shapes = asked.shapes or {}
    if of_script:
        _require_no_model(asked.model, shapes)
    elif screen.time_limit is not None:
        raise ConfigError("--time-limit is for the script after --, but none is given; omit it.")
    cluster = on_fabric(choose_cluster(cluster_text), asked.fabric)
    model = None if of_script else model_of_flags(asked.model, shapes)
    workload = Workload(
        model=model,
        sequence_length=_sequence(asked.seq, model),
        decoder_sequence_length=_written(asked.seq, model),
        images=_images(asked.images, model),
        global_batch=asked.global_batch,
        precision=Precision(asked.precision),
        optimizer=Optimizer.from_name(asked.optimizer),
        lora_rank=asked.lora_rank,
        weight_format=WeightFormat(asked.weights) if asked.weights else None,
        frozen=frozenset(map(FrozenPart, asked.freeze)),
        dispatcher=Dispatcher(asked.dispatcher) if asked.dispatcher else None,
        software=Software(compiled=asked.compile, schedule=SCHEDULES[asked.schedule]),
        states=States(asked.states) if asked.states else None,
        gradients=GradientSum(asked.gradients) if asked.gradients else None,
        loss=Loss(asked.loss) if asked.loss else None,
        updates_in_backward=asked.update_in_backward,
    )
    return TrainingRequest(
        workload=workload,
        cluster=cluster,
        limit_bytes=limit_memory(asked.memory_bytes, cluster),
        cluster_text=cluster_text,
        time_limit_s=screen.time_limit or TIME_LIMIT_S,
        json=screen.json,
        given=asked.given,
    )


def _sequence(given: int | None, model: Architecture | None) -> int:
    """Tokens of a sample: as many as asked, or as the model always reads.

    Raises:
        ConfigError: neither says how many.
    """
    if model is None:
        return given or 1
    tokens = given or model.tokens
    if tokens is None:
        raise ConfigError(
            f"--seq is missing, and {model.name} reads samples of any length; give the tokens of "
            "one, such as --seq 4096."
        )
    if model.encoder_layers and model.tokens is not None and tokens > model.tokens:
        raise ConfigError(
            f"--seq is {tokens}, but {model.name} reads at most {model.tokens} tokens of sound; "
            "give fewer, or omit it."
        )
    return tokens


def _written(given: int | None, model: Architecture | None) -> int | None:
    """Tokens that a decoder writes behind an encoder of sound: as many as it has positions."""
    if model is None or not model.encoder_layers or model.tokens is None:
        return None
    return min(model.positions, given or model.tokens)


def _images(given: int | None, model: Architecture | None) -> int:
    if given is not None and (model is None or model.front is None):
        name = "the script" if model is None else model.name
        raise ConfigError(
            f"--images is {given}, but {name} has no vision tower that is known; omit it."
        )
    return given or 1


def _require_no_model(model: str | None, shapes: Mapping[str, Any]) -> None:
    named = [*(["model"] if model is not None else []), *shapes]
    if named:
        raise ConfigError(
            f"--{named[0].replace('_', '-')} and the command after -- both say what the model "
            "is; omit one."
        )


def _with_preset(words: Sequence[str]) -> tuple[list[str], Degrees | None]:
    """Words with the flags of a preset before them, save those that are given, and its degrees."""
    names = [word.partition("=")[0] for word in words]
    if _PRESET not in names:
        return [*words], None
    place = names.index(_PRESET)
    _, equals, value = words[place].partition("=")
    name = value if equals else "".join(words[place + 1 : place + 2])
    if not name:
        return [*words], None
    found = preset(name)
    usual = {flag: value for flag, value in found.flags.items() if flag not in names}
    return [word for pair in usual.items() for word in pair] + [*words], found.degrees


def _named_prices(given: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Prices by the names of our table of GPUs.

    Raises:
        ConfigError: a GPU is unknown, or has two prices.
    """
    found: dict[str, float] = {}
    for name, usd in given:
        known = known_accelerator(name)
        if known is None:
            raise unknown_gpu(name)
        if found.setdefault(known, usd) != usd:
            raise ConfigError(f"--price names {known} twice; give it once.")
    return tuple(found.items())


def _require_in_cluster(
    prices: Sequence[tuple[str, float]], trainings: Sequence[TrainingRequest]
) -> None:
    """Refuse a price of a GPU that no cluster has.

    Raises:
        ConfigError: there is one.
    """
    gpus = {device.name for training in trainings for device in training.cluster.devices}
    for name, _ in prices:
        if name not in gpus:
            raise ConfigError(
                f"--price names {name}, but the cluster has {', '.join(sorted(gpus))}."
            )
