"""The verbs for Python: keyword arguments to the questions that flags fill, answers as values."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, cast, overload

from autoconf_launch.autotuner.cost import AUTO_TRAINER
from autoconf_launch.autotuner.sizing import Goodput
from autoconf_launch.autotuner.space import EffortName, SearchBudget, parse_budget
from autoconf_launch.core import ConfigError, NothingFeasibleError, nearest_known

from .asked import (
    TRAINER,
    FitInferenceQuestion,
    FitQuestion,
    PlanInferenceQuestion,
    PlanQuestion,
    RecommendCommand,
    RecommendQuestion,
    answers,
    keyword_errors,
    question,
)
from .commands.tune import run_tune
from .estimates import (
    cluster_of,
    fit_answer,
    fit_request,
    plan_answer,
    plan_clusters,
    plan_request,
    recommendation,
    same_values,
)
from .events import Event, Finished, Listener
from .inference import (
    fit_inference_answer,
    fit_inference_request,
    plan_inference_answer,
    plan_inference_request,
)
from .measurements import Validation, calibration_of, score_files, together
from .notebook import (
    ShownClusters,
    ShownFit,
    ShownFitInference,
    ShownPlan,
    ShownPlanInference,
    ShownRecommendation,
    TuneAnswer,
    show_as,
)
from .request import LaunchRequest, Processes, UserWords

if TYPE_CHECKING:
    from typing_extensions import Unpack

_P1 = ParamSpec("_P1")
_P2 = ParamSpec("_P2")


@answers(FitQuestion)
def fit(asked: FitQuestion) -> ShownFit:
    """Whether a training fits in one layout; no exception if it does not.

    A model is a ``model`` or ``shapes``. Data parallelism and accumulation follow from the
    cluster and the global batch.

    Raises:
        ConfigError: a keyword, a value, a name or a layout is wrong.
    """
    return show_as(ShownFit, fit_answer(fit_request(asked)))


@question
class _OneCluster(PlanQuestion):
    cluster: str


@question
class _Clusters(PlanQuestion):
    cluster: list[str] | tuple[str, ...]


class _Plan(Protocol[_P1, _P2]):
    """One cluster has a plan, several have one each."""

    @overload
    def __call__(self, *args: _P1.args, **asked: _P1.kwargs) -> ShownPlan: ...
    @overload
    def __call__(self, *args: _P2.args, **asked: _P2.kwargs) -> ShownClusters: ...


def _plan_of(
    one: Callable[_P1, PlanQuestion], several: Callable[_P2, PlanQuestion]
) -> Callable[[Callable[..., ShownPlan | ShownClusters]], _Plan[_P1, _P2]]:
    """For type checkers: a cluster as text has another answer than a list of them."""
    return lambda verb: cast("_Plan[_P1, _P2]", verb)


@_plan_of(_OneCluster, _Clusters)
@answers(PlanQuestion)
def plan(asked: PlanQuestion) -> ShownPlan | ShownClusters:
    """Every layout of a training, ranked; ``plan.best`` of the answer is empty if none fits.

    ``plan.apart`` has layouts that may be faster than the first one, but do not run here or were
    never checked; ``changes`` are answers for the nearest trainings, if no other layout fits. Of
    several clusters the best layout of each is ranked.

    Raises:
        ConfigError: a keyword, a value or a name is wrong, no run serves, or nodes differ.
    """
    request = plan_request(asked)
    if isinstance(asked.cluster, str):
        return show_as(ShownPlan, plan_answer(request))
    return ShownClusters(answers=plan_clusters(request))


@answers(FitInferenceQuestion)
def fit_inference(asked: FitInferenceQuestion) -> ShownFitInference:
    """Whether a model generates text with a batch in memory, and how fast.

    Raises:
        ConfigError: a keyword, a value or a name is wrong, or the model generates no text so.
    """
    return show_as(ShownFitInference, fit_inference_answer(fit_inference_request(asked)))


@answers(PlanInferenceQuestion)
def plan_inference(asked: PlanInferenceQuestion) -> ShownPlanInference:
    """Tensor and pipeline ranks and batches of text generation, ranked by throughput per GPU.

    ``plan.best`` has those within the bound, ``plan.front`` what no other point beats in both
    latency and throughput; ``recommended`` is None if none is within the bound.

    Raises:
        ConfigError: as for :func:`fit_inference`, or the nodes are unequal.
    """
    return show_as(ShownPlanInference, plan_inference_answer(plan_inference_request(asked)))


@answers(RecommendQuestion, Goodput=Goodput)
def recommend(asked: RecommendQuestion) -> ShownRecommendation:
    """Which model size machines can train in some days, how long one takes, or on how many GPUs.

    ``max_days`` asks for a size, ``model_size_b`` or ``model`` for the days, and a size and days
    for the GPUs of a cluster's kind. ``goodput`` is a ``Goodput``, or pairs of a name and a value.

    Raises:
        ConfigError: a keyword or a value is wrong, or the question is incomplete.
        NothingFeasibleError: no number of GPUs is fast enough.
    """
    request = RecommendCommand(**same_values(asked, RecommendCommand))
    return show_as(ShownRecommendation, recommendation(request, cluster_of(request)))


def validate(
    files: Iterable[str | Path],
    *,
    trainer: str = AUTO_TRAINER,
    calibrate: int | None = None,
    seed: int = 0,
) -> Validation:
    """How wrong predictions are on tables of measurements, over all of their rows.

    Args:
        files: CSV files, each once.
        trainer: framework of rows without a column ``trainer``; auto: by source, then GPU.
        calibrate: measurements of each model to fit the factors on, which are not scored; None:
            no fit.
        seed: draws them; at least 0.

    Raises:
        ConfigError: a value is wrong, or a file is not a table of measurements.
    """
    given = {"trainer": trainer, "calibrate": calibrate, "seed": seed}
    if why := TRAINER.refuse(trainer):
        raise ConfigError(f"trainer is {trainer!r}; {why}")
    with keyword_errors(lambda flag: _keyword(flag, given)):
        calibration = calibration_of(calibrate, seed)
        scored = score_files(list(map(Path, files)), calibration, trainer)
        return together([one for _, one in scored])


class TuneKeywords(TypedDict, total=False):
    """How a script is launched and searched; see :func:`~.questions.tune`."""

    processes: Processes | None
    effort: EffortName
    budget: SearchBudget | str | None
    good_enough: float
    memory_limit_bytes: int | None
    max_parallel_trials: int | None
    trial_timeout_s: float
    stall_timeout_s: float
    soak_steps: int | None
    tuning_space: str | None
    dialect: str | None
    fresh: bool
    trust_results: bool
    history: bool
    allow_global_batch_change: bool
    keep_global_batch: bool


def tune(
    script: str,
    arguments: Sequence[str] = (),
    listener: Listener | None = None,
    **choices: Unpack[TuneKeywords],
) -> TuneAnswer:
    """Find the fastest configuration of a script by short runs, as ``--autotuning=tune`` does.

    Args:
        script: its path; the results go to the working directory, unless its settings say where.
        arguments: of the script, such as ``("--config", "config.json")``.
        listener: gets each event of the search; None: nobody.
        choices: ``processes`` on each host (None: all GPUs), ``effort`` (quick, normal or
            thorough; None: as the script's settings say), ``budget`` ("20m", "30trials", "$15";
            None: no limit), ``good_enough`` (share of gain below which the search ends; None: as
            the effort has it), ``memory_limit_bytes`` of each rank (None),
            ``max_parallel_trials`` (None: as many as GPUs allow, 1 on a CPU),
            ``trial_timeout_s`` (600), ``stall_timeout_s`` (120), ``soak_steps`` of the winner
            (None: as many as pay; 0: none), ``tuning_space`` (a file), ``dialect`` (None: the one
            that fits), ``fresh`` (False: goes on), ``history`` (True), ``trust_results``
            of others, ``allow_global_batch_change`` and ``keep_global_batch`` (False).

    Raises:
        ConfigError: a keyword, a setting or the script is wrong.
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    ends: list[Finished] = []

    def hear(event: Event) -> None:
        if isinstance(event, Finished):
            ends.append(event)
        if listener is not None:
            listener(event)

    for name in choices:
        if name not in TuneKeywords.__annotations__:
            known = nearest_known(name, TuneKeywords.__annotations__)
            raise ConfigError(f"tune has no keyword {name}; {known}")
    with keyword_errors(lambda flag: _keyword(flag, TuneKeywords.__annotations__)):
        run_tune(_launch_request((script, *arguments), choices), hear)
    end = ends[-1] if ends else None
    if end is None or end.winner is None or end.folder is None:
        raise NothingFeasibleError("The search ended without a measured configuration.")
    return TuneAnswer(winner=end.winner, text=end.text, folder=end.folder)


def _launch_request(words: tuple[str, ...], choices: Mapping[str, Any]) -> LaunchRequest:
    """A tune of a command: a script and its arguments."""
    given: dict[str, Any] = dict(choices)
    if isinstance(given.get("budget"), str):
        given["budget"] = parse_budget(given["budget"])
    effort = given.pop("effort", None)
    overrides = () if effort is None else (("effort", effort),)
    names = UserWords.__dataclass_fields__.keys() & given.keys()
    said = UserWords(overrides=overrides, **{name: given.pop(name) for name in names})
    return LaunchRequest(
        script=words[0],
        script_args=words[1:],
        autotuning="tune",
        words=said,
        argv=words,
        **given,
    )


_KEYWORDS = {"num_gpus": "processes"}
"""Flags of a tune whose keyword has another name."""


def _keyword(flag: str, known: Container[str]) -> str | None:
    """The keyword with the meaning of a flag; None if there is not one."""
    name = flag.removeprefix("--").replace("-", "_")
    return next((one for one in (name, _KEYWORDS.get(name)) if one in known), None)
