"""The answer of ``recommend``: formula, model, planner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.cost import TrainerChoice
from autoconf_launch.autotuner.planner import Bounds, OwnRuns
from autoconf_launch.autotuner.sizing import (
    Budget,
    ChosenModel,
    Family,
    GpuPrice,
    ModelQuestion,
    Outlook,
    Sensitivity,
    SpeedBand,
    Task,
    achieved_speed,
    by_effect,
    choose_model,
    exact_training_days,
    gpus_for_days,
    log_width,
    narrow_band,
    nvidias_shape_note,
    outlook,
    recommended_size_b,
    size_for_days,
    speed_band,
    training_days,
)
from autoconf_launch.core import ClusterSpec, ConfigError, NothingFeasibleError
from autoconf_launch.tuning_spaces import (
    generation_of,
    published_speeds,
    tables,
    usual_of,
)

from ..asked import RecommendCommand, tokens_text
from ..measurements import TrainingRuns, read_training_runs
from .base_config import custom_model
from .clusters import choose_price, machine_of, whole_node
from .models import model_of_flags
from .recommend_question import (
    ChosenCluster,
    model_question,
    nearest_search,
    notes_on_rate,
    with_model,
)
from .trainers import USUAL_TRAINER, usual_training
from .verifying import Verifying, run_bounds, verify_outlook

_FIRST_GUESS_TFLOPS = 140.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerPart:
    """Our planner's answer, or ``why_not`` there is none.

    ``size_b`` is the largest size that it expects to train in the given days.
    """

    outlook: Outlook | None
    size_b: float | None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusForDays:
    """Number of GPUs that train a size in the given days.

    Attributes:
        cluster: the fewest by our planner, with their ``outlook``; None if no number does.
        by_formula: the fewest by NVIDIA's formula, at the rate of the answer's budget.
    """

    cluster: ChosenCluster | None
    outlook: Outlook | None
    by_formula: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer that all forms of the report show.

    Attributes:
        max_days: as given.
        needed: set if both a size and days were given.
        days: rounded as NVIDIA's tool does.
        cluster: as given; the needed GPUs if a single node is too slow for the given days and
            size.
        global_batch: batch of the planner's layout, if none was given.
        model: has a shape of ours if a recommended size is above the limit of the family's
            tables.
        measured: runs that correct the speed, if given.
        verifying: runs that would narrow the band, if requested.
    """

    family: Family
    max_days: float | None
    needed: GpusForDays | None
    size_b: float
    days: float
    exact_days: float
    budget: Budget
    is_rate_predicted: bool
    nearest: str | None
    cluster: ChosenCluster
    model: ChosenModel
    global_batch: int
    planner: PlannerPart
    notes: tuple[str, ...]
    trainer: TrainerChoice = USUAL_TRAINER
    measured: TrainingRuns | None = None
    verifying: Verifying | None = None


def recommendation(request: RecommendCommand, cluster: ChosenCluster) -> Recommendation:
    """Answer by formula and by planner.

    Raises:
        ConfigError: the size is above the family's limit, or the budget gives no size, or a size
            that no shape has.
        NothingFeasibleError: no number of GPUs is fast enough.
    """
    bounds = run_bounds(request)
    named = None if request.model is None else model_of_flags(request.model, {})
    if named is not None:
        request = with_model(request, named)
    family = Family(_family_name(request))
    question = model_question(request, family, cluster.gpu_memory_gb, named)
    runs = _measured_runs(request, cluster)
    own = None if runs is None else runs.own
    predictor = _Predictor(request=request, cluster=cluster, question=question, runs=own)
    enough = predictor.with_enough_gpus() if _asks_for_gpus(request) else None
    if _asks_for_gpus(request) and _is_kind(request, cluster, predictor):
        if enough is None:
            raise NothingFeasibleError(
                f"no number of the GPUs of {cluster.text} trains {request.model_size_b:g} B "
                f"parameters on {tokens_text(request.tokens_b)} in {request.max_days:g} days."
            )
        predictor, cluster = enough, enough.cluster
    rate = request.tflops_per_gpu or predictor.rate()
    budget = Budget(gpus=cluster.gpus, tflops_per_gpu=rate, tokens_b=request.tokens_b)
    size_b = _size(request, budget)
    model = _model(replace(question, size_b=size_b), request, budget)
    if request.custom_config is not None:
        model = custom_model(model, request.custom_config)
    planner = predictor.answer(model)
    is_late = planner.outlook and planner.outlook.days > (request.max_days or math.inf)
    is_ours = not (request.tflops_per_gpu or request.custom_config or request.base_config)
    if is_late and is_ours and planner.size_b:
        model = _model(replace(question, size_b=planner.size_b), request, budget)
        planner = predictor.answer(model)
    nearest = nearest_search(family, model)
    return Recommendation(
        family=family,
        max_days=request.max_days,
        needed=_gpus_for_days(request, budget, enough),
        size_b=size_b,
        days=training_days(family.name, size_b, budget),
        exact_days=exact_training_days(family.name, size_b, budget),
        budget=budget,
        is_rate_predicted=request.tflops_per_gpu is None,
        nearest=nearest,
        cluster=cluster,
        model=model,
        global_batch=_batch_of(request, model, planner),
        planner=planner,
        notes=(
            *_notes_on_batch(model, planner),
            *_notes(request, model, cluster, nearest),
        ),
        measured=runs,
        verifying=None if bounds is None else predictor.verifying(model, planner, bounds),
    )


def _measured_runs(request: RecommendCommand, cluster: ChosenCluster) -> TrainingRuns | None:
    """Runs of the model that is recommended without them, which may not be the answer's.

    Raises:
        ConfigError: the cluster cannot be predicted, or no row is a run of that model.
    """
    if request.measured is None:
        return None
    plain = replace(request, measured=None, verify=None, verify_budget_usd=None)
    before = recommendation(plain, cluster)
    spec, found = before.cluster.spec, before.planner.outlook
    if spec is None or found is None:
        raise ConfigError(
            f"--measured corrects the planner, which has no answer: {before.planner.why_not}"
        )
    model = before.model
    training = usual_training(model.architecture, model.asked.sequence, machine_of(spec))
    return read_training_runs(request.measured, training, log_width(found.band), len(spec.nodes))


def _asks_for_gpus(request: RecommendCommand) -> bool:
    """A size and days are given, so that only the number of GPUs is open."""
    return request.model_size_b is not None and request.max_days is not None


def _is_kind(request: RecommendCommand, cluster: ChosenCluster, predictor: _Predictor) -> bool:
    assert request.max_days is not None
    if request.gpus is not None or cluster.nodes > 1 or cluster.spec is None:
        return False
    found = predictor.predict()
    return found is None or found.days > request.max_days


def _gpus_for_days(
    request: RecommendCommand, budget: Budget, enough: _Predictor | None
) -> GpusForDays | None:
    if request.model_size_b is None or request.max_days is None:
        return None
    days = exact_training_days(_family_name(request), request.model_size_b, budget)
    return GpusForDays(
        cluster=None if enough is None else enough.cluster,
        outlook=None if enough is None else enough.predict(),
        by_formula=math.ceil(budget.gpus * days / request.max_days),
    )


def _family_name(request: RecommendCommand) -> str:
    assert request.family is not None
    return request.family


def _batch_of(request: RecommendCommand, model: ChosenModel, planner: PlannerPart) -> int:
    if planner.outlook is None or request.custom_config:
        return model.batch.global_batch
    return planner.outlook.achieved.layout.global_batch


def _size(request: RecommendCommand, budget: Budget) -> float:
    if request.model_size_b is not None:
        return request.model_size_b
    assert request.max_days is not None
    return recommended_size_b(_family_name(request), budget, request.max_days)


def _model(question: ModelQuestion, request: RecommendCommand, budget: Budget) -> ChosenModel:
    try:
        return choose_model(tables(generation_of(question.family)), question)
    except ConfigError as error:
        if request.max_days is None or request.model_size_b is not None:
            raise
        raise ConfigError(
            f"In {request.max_days:g} days {budget.gpus} GPUs would train {question.size_b:g} B "
            f"parameters on {tokens_text(budget.tokens_b)}. {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predictor:
    """Asks the cost model about models on one cluster."""

    request: RecommendCommand
    cluster: ChosenCluster
    question: ModelQuestion
    runs: OwnRuns | None

    def rate(self) -> float:
        """TFLOP/s of a GPU as the formula counts, for the size it would then recommend.

        Raises:
            ConfigError: the cluster cannot be predicted.
        """
        rate = _FIRST_GUESS_TFLOPS
        for _ in range(3):
            budget = Budget(
                gpus=self.cluster.gpus, tflops_per_gpu=rate, tokens_b=self.request.tokens_b
            )
            size_b = max(_size(self.request, budget), 1e-6)
            found = self.outlook(self._choose(size_b))
            if found is None:
                why = self.cluster.why_no_machines.rstrip(".") or "no layout fits"
                raise ConfigError(f"No rate can be predicted: {why}; give --tflops-per-gpu.")
            rate = found.achieved.tflops_per_gpu
        return rate

    def predict(self) -> Outlook | None:
        """The outlook of the size that was given."""
        return self.outlook(self._choose(self.question.size_b))

    def with_enough_gpus(self) -> _Predictor | None:
        """The fewest GPUs of this kind that train the size in the days; None if no number does."""
        if self.cluster.spec is None:
            return None

        def of(gpus: int) -> _Predictor:
            return replace(self, cluster=self.cluster.with_gpus(gpus))

        def days_of(gpus: int) -> float | None:
            found = of(gpus).predict()
            return found.days if found else None

        assert self.request.max_days is not None
        each = len(whole_node(self.cluster.spec.nodes[0]).devices)
        gpus = gpus_for_days(each, self.request.max_days, days_of)
        return of(gpus) if gpus else None

    def answer(self, model: ChosenModel) -> PlannerPart:
        """Days and cost of a model, and the size for the days that were given."""
        found = self.outlook(model)
        if found is None and not self.cluster.why_no_machines:
            gpus, name = self.cluster.gpus, self.cluster.text
            why = (
                f"no layout of {model.shape.layers} layers with a global batch near "
                f"{model.batch.global_batch} divides {gpus} GPUs of {name} and fits safely in "
                "their memory; try other --gpus or another --global-batch."
            )
            return self.without(model.asked.size_b, why)
        return PlannerPart(
            outlook=self._with_model_sensitivities(found, model) if found else None,
            size_b=self._size(model.asked.size_b) if found else None,
            why_not=self.cluster.why_no_machines,
        )

    def _with_model_sensitivities(self, found: Outlook, model: ChosenModel) -> Outlook:
        """The outlook with the assumptions on the model, whatever was not given."""
        asked, request, batch = model.asked, self.request, found.achieved.layout.global_batch
        if request.custom_config is not None:
            return found
        kinds = {
            "sequence_length": ("--seq", request.sequence, "sequence", asked.sequence),
            "vocabulary": ("--vocab", request.vocabulary, "vocabulary", asked.vocabulary),
            "global_batch": ("--global-batch", request.global_batch, "batch", batch),
        }
        more = []
        for name, (flag, given, field, value) in kinds.items():
            half, double = (
                None if given else self._days_with(asked, batch, field, value * factor // 2)
                for factor in (1, 4)
            )
            if half is not None and double is not None:
                more.append(
                    Sensitivity(
                        name=name,
                        value=value,
                        days_at_half=half,
                        days_at_double=double,
                        why=f"assumed: as usual for {asked.family.name}",
                        flag=flag,
                    )
                )
        return replace(found, sensitivities=by_effect((*found.sensitivities, *more)))

    def _days_with(self, asked: ModelQuestion, batch: int, field: str, value: int) -> float | None:
        changed = replace(asked, **dict[str, Any]({"batch": batch, field: value}))
        request = replace(self.request, global_batch=changed.batch)
        try:
            found = replace(self, request=request, question=changed).predict()
        except ConfigError:
            return None
        return found.days if found else None

    def without(self, size_b: float, why_not: str) -> PlannerPart:
        """No answer for this size, but the size for the days that were given."""
        size = self._size(size_b) if self.cluster.spec else None
        return PlannerPart(outlook=None, size_b=size, why_not=why_not)

    def outlook(self, model: ChosenModel) -> Outlook | None:
        spec = self.cluster.spec
        if spec is None:
            return None
        done = achieved_speed(self._task(model, spec))
        if done is None:
            return None
        band = self._band(model)
        return outlook(
            done,
            self.request.tokens_b,
            self.cluster.gpus,
            self.request.assumed_goodput(),
            _rate(spec, self.request.usd_per_gpu_hour),
            band if self.runs is None else narrow_band(band, done.narrowing),
        )

    def _task(self, model: ChosenModel, spec: ClusterSpec) -> Task:
        training = usual_training(model.architecture, model.asked.sequence, machine_of(spec))
        return Task(
            training=replace(training, runs=self.runs),
            nodes=len(spec.nodes),
            memory_bytes=self.cluster.memory_bytes,
            global_batch=model.batch.global_batch,
            is_batch_given=(self.request.global_batch or self.request.custom_config) is not None,
            active_parameters=model.active_count,
            slowest=self._band(model).slowest,
        )

    @staticmethod
    def _band(model: ChosenModel) -> SpeedBand:
        has_experts = model.architecture.experts is not None
        return speed_band(published_speeds(), has_experts=has_experts)

    def verifying(self, model: ChosenModel, part: PlannerPart, bounds: Bounds) -> Verifying:
        """The runs that narrow the answer for a model.

        Raises:
            ConfigError: there is no answer, or a needed price is unknown.
        """
        spec, found = self.cluster.spec, part.outlook
        if spec is None or found is None:
            raise ConfigError(
                f"Verifying runs narrow the planner's answer, which has none: {part.why_not}"
            )
        return verify_outlook(
            self._task(model, spec),
            found,
            self._band(model),
            bounds,
            _rate(spec, self.request.usd_per_gpu_hour).usd_per_gpu_hour,
            self.request.assumed_goodput().restart_s,
        )

    def _size(self, size_b: float) -> float | None:
        if self.request.max_days is None or _asks_for_gpus(self.request):
            return None

        def days_of(size_b: float) -> float | None:
            try:
                found = self.outlook(self._choose(size_b))
            except ConfigError:
                return None
            return found.days if found else None

        return size_for_days(size_b, self.request.max_days, days_of)

    def _choose(self, size_b: float) -> ChosenModel:
        asked = replace(self.question, size_b=size_b)
        return choose_model(tables(generation_of(asked.family)), asked)


def _rate(cluster: ClusterSpec, given: float | None) -> GpuPrice:
    found = choose_price(given, cluster)
    if found is None:
        return GpuPrice(usd_per_gpu_hour=None, source="no price is known; give --usd-per-gpu-hour")
    source, _, _ = found.how.partition(";")
    return GpuPrice(usd_per_gpu_hour=found.usd_per_gpu_hour, source=source)


def _notes_on_batch(model: ChosenModel, planner: PlannerPart) -> Iterator[str]:
    done = planner.outlook and planner.outlook.achieved
    if done and done.is_batch_given and done.is_batch_changed:
        yield (
            f"No layout of these GPUs that fits safely has the global batch of "
            f"{model.batch.global_batch} that was given: this answer is for "
            f"{done.layout.global_batch}."
        )


def _notes(
    request: RecommendCommand, model: ChosenModel, cluster: ChosenCluster, nearest: str | None
) -> Iterator[str]:
    family = Family(_family_name(request))
    yield from model.notes
    yield from cluster.notes
    yield from notes_on_rate(request, cluster)
    if nearest is None:
        yield f"No search is predefined for the family {family.name}."
    has_usual = usual_of(family.predefined) is not None
    whose = f"{family.name}'s predefined searches" if has_usual else "Llama's searches"
    published = model.asked.published
    if request.model is None and published is not None:
        yield from filter(None, [nvidias_shape_note(tables(generation_of(family)), model.asked)])
        yield (
            f"Using the shape of {published.name}: {model.exact_count / 1e9:.4g} B parameters, "
            f"vocabulary {model.asked.vocabulary}."
        )
    elif request.vocabulary is None:
        vocabulary = model.asked.vocabulary
        yield f"Using the vocabulary of {whose}, {vocabulary} (change it with --vocab)."
    if request.sequence is None:
        sequence = model.asked.sequence
        yield f"Using the sequence length of {whose}, {sequence} tokens (change it with --seq)."
