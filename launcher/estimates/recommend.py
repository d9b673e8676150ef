"""The answer of ``recommend``: formula, model, planner. Not: flags, files written, text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.autotuner.sizing import (
    Assumed,
    Budget,
    ChosenModel,
    Family,
    GpuPrice,
    ModelQuestion,
    Outlook,
    Task,
    achieved_speed,
    choose_model,
    exact_training_days,
    family_named,
    nearest_predefined,
    outlook,
    parse_model_name,
    recommended_size_b,
    size_for_days,
    speed_band,
    training_days,
)
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, HardwareError
from autoconf_launch.tuning_spaces import (
    equal_nodes,
    generation_of,
    machine,
    predefined_searches,
    published_speeds,
    tables,
    usual_of,
)

from ..machine import is_cpu
from .model_choice import custom_model, model_of_flags
from .recommend_flags import RecommendRequest
from .training_choice import choose_cluster, choose_price, machine_of, usual_training

_NODE = 8
_SEEDS_GPU = "A100-SXM-80GB"
_SEEDS_GPUS = {80.0: _SEEDS_GPU, 40.0: "A100-SXM-40GB"}
"""What NVIDIA's tools count on: DGX A100 with either memory."""
_SEEDS_MEMORY_GB = 80.0
_GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster:
    """Nodes, and what a planner can do with them.

    Attributes:
        spec: None where the planner cannot predict it; ``why_no_machines`` says why.
        text: its short name.
        gpu_memory_gb: of one GPU, by its datasheet.
    """

    nodes: int
    gpus_per_node: int
    gpu_memory_gb: float
    text: str
    spec: ClusterSpec | None
    why_no_machines: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node

    @property
    def memory_bytes(self) -> float:
        """What a process can have on one GPU: of the given memory the share that it usually has.

        0 where the planner cannot predict the cluster.
        """
        if self.spec is None:
            return 0.0
        return self.spec.least_memory_bytes * self.gpu_memory_gb / _datasheet_gb(self.spec)


def cluster_of(request: RecommendRequest) -> ChosenCluster:
    """``--cluster``, or nodes of the GPUs that NVIDIA's tools count on.

    Raises:
        ConfigError: nodes do not divide the GPUs, or two flags contradict each other.
    """
    return (
        _given_cluster(request, request.cluster) if request.cluster else _assumed_cluster(request)
    )


def _given_cluster(request: RecommendRequest, text: str) -> ChosenCluster:
    spec = choose_cluster(text)
    if is_cpu(spec):
        raise HardwareError(
            f"--cluster {text}: this machine has no GPU, and sizes are recommended for GPUs; name "
            "some, such as --cluster 8xH100."
        )
    count = len(spec.devices)
    if request.gpus not in (None, count):
        raise ConfigError(
            f"--gpus is {request.gpus}, but --cluster {text} has {count}; leave --gpus out."
        )
    alike = spec.are_nodes_equal
    return ChosenCluster(
        nodes=len(spec.nodes) if alike else 1,
        gpus_per_node=len(spec.nodes[0].devices) if alike else count,
        gpu_memory_gb=request.gpu_memory_gb or _datasheet_gb(spec),
        text=text,
        spec=spec if alike else None,
        why_no_machines="" if alike else "it cannot predict nodes that differ.",
    )


def _datasheet_gb(spec: ClusterSpec) -> float:
    return machine(spec.nodes[0].devices[0].name).accelerator.memory_bytes / _GB


def _assumed_cluster(request: RecommendRequest) -> ChosenCluster:
    gpus = request.gpus
    assert gpus is not None
    each = _gpus_per_node(gpus, request.nodes)
    memory_gb = request.gpu_memory_gb or _SEEDS_MEMORY_GB
    gpu = _SEEDS_GPUS.get(memory_gb, _SEEDS_GPU)
    text = f"{gpus // each}x{each}x{gpu}"
    counted = f"the planner assumes {text}"
    notes = [f"No --cluster was given: {counted}, as NVIDIA's tools do."]
    if memory_gb not in _SEEDS_GPUS:
        notes = [
            f"No --cluster says which GPU has {memory_gb:g} GB: {counted} with that much memory."
        ]
    return ChosenCluster(
        nodes=gpus // each,
        gpus_per_node=each,
        gpu_memory_gb=memory_gb,
        text=text,
        spec=equal_nodes(gpus // each, each, gpu),
        notes=tuple(notes),
    )


def _gpus_per_node(gpus: int, nodes: int | None) -> int:
    if nodes is None:
        return max(each for each in range(1, _NODE + 1) if gpus % each == 0)
    if gpus % nodes:
        valid = " ".join(str(n) for n in range(1, min(gpus, 4096) + 1) if gpus % n == 0)
        raise ConfigError(f"--num-nodes {nodes} does not divide {gpus} GPUs; valid: {valid}.")
    return gpus // nodes


_USUAL_VOCABULARY, _USUAL_SEQUENCE = 32_000, 4096
_FIRST_GUESS_TFLOPS = 140.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerPart:
    """What our planner says; ``why_not`` where it has no answer.

    ``size_b`` is the largest that it sees trained in the days that were given.
    """

    outlook: Outlook | None
    size_b: float | None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """All that the two forms of the report say.

    ``days`` are rounded as NVIDIA's tool does. ``model`` has a shape of ours where a recommended
    size is above what the family's tables allow.
    """

    family: Family
    size_b: float
    days: float
    exact_days: float
    budget: Budget
    is_rate_predicted: bool
    nearest: str | None
    cluster: ChosenCluster
    model: ChosenModel
    planner: PlannerPart
    notes: tuple[str, ...]


def recommendation(request: RecommendRequest, cluster: ChosenCluster) -> Recommendation:
    """Work it all out.

    Raises:
        ConfigError: the size is above what the family allows, or the budget gives none, or one
            that no shape has.
    """
    published = None if request.model is None else model_of_flags(request.model, {})
    if published is not None:
        request = _with_model(request, published)
    family = Family(_family_name(request))
    question = _question(request, family, cluster.gpu_memory_gb)
    question = replace(question, published=published)
    predictor = _Predictor(request, cluster, question)
    rate = request.tflops_per_gpu or predictor.rate()
    budget = Budget(gpus=cluster.gpus, tflops_per_gpu=rate, tokens_b=request.tokens_b)
    size_b = _size(request, budget)
    model = _model(replace(question, size_b=size_b), request, budget)
    if request.custom_config is not None:
        model = custom_model(model, request.custom_config)
    planner = predictor.answer(model)
    nearest = nearest_predefined(predefined_searches(), family.predefined, size_b)
    return Recommendation(
        family=family,
        size_b=size_b,
        days=training_days(family.name, size_b, budget),
        exact_days=exact_training_days(family.name, size_b, budget),
        budget=budget,
        is_rate_predicted=request.tflops_per_gpu is None,
        nearest=nearest,
        cluster=cluster,
        model=model,
        planner=planner,
        notes=tuple(_notes(request, model, cluster, nearest)),
    )


def _with_model(request: RecommendRequest, model: Architecture) -> RecommendRequest:
    """The question with what a model says: family, size, vocabulary.

    Raises:
        ConfigError: its name says no family, or what was asked for does not go with it.
    """
    if request.vocabulary not in (None, model.vocabulary):
        raise ConfigError(
            f"--vocab is {request.vocabulary}, but {model.name} has {model.vocabulary}; omit it."
        )
    if request.base_config is not None and model.latent is not None:
        raise ConfigError(
            f"--base-config cannot describe the latent attention of {model.name}; omit it."
        )
    family = request.family or _family_of(model.name)
    size_b = round(parameters(model) / 1e9, 4)
    return replace(request, family=family, model_size_b=size_b, vocabulary=model.vocabulary)


def _family_of(name: str) -> str:
    """A family that rules know, else the first word of a name or an id."""
    if known := parse_model_name(name).family:
        return known
    word = re.match(r"[A-Za-z]+", name.rpartition("/")[2])
    if word is None or name.endswith(".json"):
        raise ConfigError(f"{name} does not say its family; give it with --family, such as gpt3.")
    return family_named(word[0]).name


def _family_name(request: RecommendRequest) -> str:
    assert request.family is not None
    return request.family


def _question(request: RecommendRequest, family: Family, memory_gb: float) -> ModelQuestion:
    usual = usual_of(family.predefined) or (_USUAL_VOCABULARY, _USUAL_SEQUENCE)
    return ModelQuestion(
        family=family,
        size_b=request.model_size_b or 1.0,
        vocabulary=request.vocabulary or usual[0],
        sequence=request.sequence or usual[1],
        gpu_memory_gb=memory_gb,
        batch=request.global_batch,
        may_exceed=request.model_size_b is None,
    )


def _size(request: RecommendRequest, budget: Budget) -> float:
    if request.model_size_b is not None:
        return request.model_size_b
    assert request.max_days is not None
    return recommended_size_b(_family_name(request), budget, request.max_days)


def _model(question: ModelQuestion, request: RecommendRequest, budget: Budget) -> ChosenModel:
    """The model of a size; of one that was recommended it says why where there is none."""
    try:
        return choose_model(tables(generation_of(question.family)), question)
    except ConfigError as error:
        if request.max_days is None or request.model_size_b is not None:
            raise
        raise ConfigError(
            f"In {request.max_days:g} days {budget.gpus} GPUs would train {question.size_b:g} "
            f"billion parameters on {budget.tokens_b:g} billion tokens. {error}"
        ) from error


class _Predictor:
    """Asks the cost model about models on one cluster."""

    def __init__(
        self, request: RecommendRequest, cluster: ChosenCluster, question: ModelQuestion
    ) -> None:
        self._request = request
        self._cluster = cluster
        self._question = question
        self._why_not = cluster.why_no_machines

    def rate(self) -> float:
        """TFLOP/s of a GPU as the formula counts, for the size it would then recommend.

        Raises:
            ConfigError: the cluster cannot be predicted.
        """
        rate = _FIRST_GUESS_TFLOPS
        for _ in range(3):
            budget = Budget(
                gpus=self._cluster.gpus, tflops_per_gpu=rate, tokens_b=self._request.tokens_b
            )
            size_b = max(_size(self._request, budget), 1e-6)
            found = self.outlook(self._choose(size_b))
            if found is None:
                why = self._why_not or "no layout fits"
                raise ConfigError(f"No rate can be predicted: {why} Give --tflops-per-gpu.")
            rate = found.achieved.tflops_per_gpu
        return rate

    def answer(self, model: ChosenModel) -> PlannerPart:
        """Days and cost of a model, and the size for the days that were given."""
        found = self.outlook(model)
        if found is None and not self._why_not:
            gpus, name = self._cluster.gpus, self._cluster.text
            why = (
                f"no layout of {model.shape.layers} layers with a global batch near "
                f"{model.batch.global_batch} divides {gpus} GPUs of {name} and surely fits in "
                "their memory; try other --gpus or another --global-batch."
            )
            return self.without(model.asked.size_b, why)
        return PlannerPart(
            outlook=found,
            size_b=self._size(model.asked.size_b) if found else None,
            why_not=self._why_not,
        )

    def without(self, size_b: float, why_not: str) -> PlannerPart:
        """No answer for this size, but the size for the days that were given."""
        size = self._size(size_b) if self._cluster.spec else None
        return PlannerPart(outlook=None, size_b=size, why_not=why_not)

    def outlook(self, model: ChosenModel) -> Outlook | None:
        """How long a training takes; None if the cluster cannot be predicted or nothing fits."""
        spec = self._cluster.spec
        if spec is None:
            return None
        done = achieved_speed(self._task(model, spec))
        if done is None:
            return None
        assumed = Assumed(
            goodput=self._request.goodput,
            rate=_rate(spec, self._request.usd_per_gpu_hour),
            band=speed_band(
                published_speeds(), has_experts=model.architecture.experts is not None
            ),
        )
        return outlook(done, self._request.tokens_b, self._cluster.gpus, assumed)

    def _task(self, model: ChosenModel, spec: ClusterSpec) -> Task:
        return Task(
            training=usual_training(model.architecture, model.asked.sequence, machine_of(spec)),
            nodes=len(spec.nodes),
            memory_bytes=self._cluster.memory_bytes,
            global_batch=model.batch.global_batch,
            is_batch_given=(self._request.global_batch or self._request.custom_config) is not None,
            active_parameters=model.active_count,
        )

    def _size(self, size_b: float) -> float | None:
        if self._request.max_days is None:
            return None

        def days_of(size_b: float) -> float | None:
            try:
                found = self.outlook(self._choose(size_b))
            except ConfigError:
                return None
            return found.days if found else None

        return size_for_days(size_b, self._request.max_days, days_of)

    def _choose(self, size_b: float) -> ChosenModel:
        asked = replace(self._question, size_b=size_b)
        return choose_model(tables(generation_of(asked.family)), asked)


def _rate(cluster: ClusterSpec, given: float | None) -> GpuPrice:
    found = choose_price(given, cluster)
    if found is None:
        return GpuPrice(usd_per_gpu_hour=None, source="no price is known; give --usd-per-gpu-hour")
    source, _, _ = found.how.partition(";")
    return GpuPrice(usd_per_gpu_hour=found.usd_per_gpu_hour, source=source)


def _notes(
    request: RecommendRequest, model: ChosenModel, cluster: ChosenCluster, nearest: str | None
) -> Iterator[str]:
    """What was not given, not covered, or not as it seems."""
    family = Family(_family_name(request))
    yield from model.notes
    yield from cluster.notes
    if nearest is None:
        yield f"No search is predefined for the family {family.name}."
    has_usual = usual_of(family.predefined) is not None
    whose = f"{family.name}'s predefined searches" if has_usual else "Llama's searches"
    if request.vocabulary is None:
        vocabulary = model.asked.vocabulary
        yield f"Using the vocabulary of {whose}, {vocabulary} (change it with --vocab)."
    if request.sequence is None:
        sequence = model.asked.sequence
        yield f"Using the sequence length of {whose}, {sequence} tokens (change it with --seq)."
