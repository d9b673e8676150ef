"""The verbs for Python: keyword arguments to questions, and answers that a notebook shows."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from autoconf_launch.autotuner.sizing import Goodput
from autoconf_launch.autotuner.space import Record, SearchBudget
from autoconf_launch.core import ConfigError, NothingFeasibleError

from .asked import (
    FitInferenceQuestion,
    FitQuestion,
    PlanInferenceQuestion,
    PlanQuestion,
    RecommendCommand,
    RecommendQuestion,
    TuneQuestion,
    ValidateQuestion,
    answers,
    question,
    refuse_other_than_path,
    refuse_other_than_text,
)
from .commands.tune import run_tune
from .estimates import (
    FitAnswer,
    FitInferenceAnswer,
    PlanAnswer,
    PlanInferenceAnswer,
    Recommendation,
    cluster_of,
    fit_answer,
    fit_inference_answer,
    fit_inference_request,
    fit_request,
    plan_answer,
    plan_clusters,
    plan_inference_answer,
    plan_inference_request,
    plan_request,
    recommendation,
    same_values,
)
from .events import Event, Finished, Listener
from .measurements import Validation, calibration_of, score_files, together
from .pages import HtmlPage, plan_page, recommend_page, text_html, tune_page, write_page
from .report import fit_inference_text, fit_text, plan_inference_text, plan_text, recommend_text
from .request import tune_request
from .results import read_results

_T = TypeVar("_T")
_P1 = ParamSpec("_P1")
_P2 = ParamSpec("_P2")


class Shown(ABC):
    """An answer that is the text of the command in a notebook, its tables as tables."""

    __slots__ = ()

    @abstractmethod
    def _text(self) -> str: ...

    def __str__(self) -> str:
        return self._text()

    def _repr_html_(self) -> str:
        return text_html(self._text())


class ShownWithCharts(Shown):
    """An answer that has a page."""

    __slots__ = ()

    @abstractmethod
    def _page(self) -> HtmlPage: ...

    def write_html(self, path: str | Path) -> None:
        """Write the answer with charts as one HTML file, as ``--html`` does.

        Raises:
            ConfigError: the file cannot be written, or the extra ``html`` is not installed.
        """
        write_page(self._page(), Path(path))


class ShownFit(Shown, FitAnswer):
    """The answer of ``fit``."""

    __slots__ = ()

    _text = fit_text


class ShownFitInference(Shown, FitInferenceAnswer):
    """The answer of ``fit --inference``."""

    __slots__ = ()

    _text = fit_inference_text


class ShownPlanInference(Shown, PlanInferenceAnswer):
    """The answer of ``plan --inference``."""

    __slots__ = ()

    _text = plan_inference_text


class ShownPlan(ShownWithCharts, PlanAnswer):
    """The answer of ``plan``."""

    __slots__ = ()

    _text = plan_text

    def _page(self) -> HtmlPage:
        return plan_page((self,), self._text())


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClusters(ShownWithCharts):
    """The best layout on each of several clusters, the best cluster first."""

    answers: tuple[PlanAnswer, ...]

    def _text(self) -> str:
        return plan_text(*self.answers)

    def _page(self) -> HtmlPage:
        return plan_page(self.answers, self._text())


class ShownRecommendation(ShownWithCharts, Recommendation):
    """The answer of ``recommend``."""

    __slots__ = ()

    _text = recommend_text

    def _page(self) -> HtmlPage:
        return recommend_page(self, self._text())


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneAnswer(ShownWithCharts):
    """The result of a search; ``folder`` has its files, ``text`` is the command's output."""

    winner: Record
    text: str
    folder: Path

    def _text(self) -> str:
        return self.text

    def _page(self) -> HtmlPage:
        return tune_page(read_results(self.folder))


def show_as(kind: type[_T], answer: Any) -> _T:
    """The same answer as a type of this module whose base is the type of the answer."""
    return kind(**{field.name: getattr(answer, field.name) for field in fields(answer)})


@answers(FitQuestion)
def fit(asked: FitQuestion) -> ShownFit:
    """True if a training fits in one layout; no exception if it does not.

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
    """A plan of one cluster, or of each of several."""

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
    """True if a model generates text with a batch in memory, and how fast.

    Raises:
        ConfigError: a keyword, a value or a name is wrong, or the model generates no text so.
    """
    return show_as(ShownFitInference, fit_inference_answer(fit_inference_request(asked)))


@answers(PlanInferenceQuestion)
def plan_inference(asked: PlanInferenceQuestion) -> ShownPlanInference:
    """Tensor and pipeline ranks and batches of text generation, ranked by throughput per GPU.

    ``plan.best`` has the points within the bound, ``plan.front`` the points that no other beats in
    both latency and throughput; ``recommended`` is None if none is within the bound.

    Raises:
        ConfigError: as for :func:`fit_inference`, or the nodes are unequal.
    """
    return show_as(ShownPlanInference, plan_inference_answer(plan_inference_request(asked)))


@answers(RecommendQuestion, Goodput=Goodput)
def recommend(asked: RecommendQuestion) -> ShownRecommendation:
    """Answer which model size, how many days or how many GPUs a training needs.

    ``max_days`` asks for a size, ``model_size_b`` or ``model`` for the days, and a size and days
    for the GPUs of a cluster's kind. ``goodput`` is a ``Goodput``, or pairs of a name and a value.

    Raises:
        ConfigError: a keyword or a value is wrong, or the question is incomplete.
        NothingFeasibleError: no number of GPUs is fast enough.
    """
    request = RecommendCommand(**same_values(asked, RecommendCommand))
    return show_as(ShownRecommendation, recommendation(request, cluster_of(request)))


class _Validate(Protocol[_P1]):
    def __call__(
        self, files: str | Path | Iterable[str | Path], *rest: _P1.args, **asked: _P1.kwargs
    ) -> Validation: ...


def _validate_of(
    kind: Callable[_P1, ValidateQuestion],
) -> Callable[[Callable[..., Validation]], _Validate[_P1]]:
    """For type checkers: the tables come before the keywords."""
    return lambda verb: cast("_Validate[_P1]", verb)


@_validate_of(ValidateQuestion)
@answers(ValidateQuestion)
def validate(asked: ValidateQuestion, files: str | Path | Iterable[str | Path]) -> Validation:
    """Score predictions against tables of measurements, over all rows of one or more CSV files.

    Raises:
        ConfigError: a value is wrong, or a file is not a table of measurements.
    """
    paths = list(map(Path, _each("files", files, refuse_other_than_path)))
    if not paths:
        raise ConfigError("files is empty; give at least one table of measurements.")
    scored = score_files(paths, calibration_of(asked), asked.trainer)
    return together([one for _, one in scored])


def _each(name: str, values: object, refuse: Callable[[Any], str | None]) -> list[Any]:
    """A single value as a list, or several as they are.

    Raises:
        ConfigError: one is wrong, or there are neither one nor several.
    """
    if not refuse(values):
        return [values]
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} is {values!r}; {refuse(values)}, or several in a list.")
    several = list(values)
    for one in several:
        if why := refuse(one):
            raise ConfigError(f"{name} has {one!r}; {why}.")
    return several


def _words(arguments: str | Sequence[str]) -> list[str]:
    if not isinstance(arguments, str):
        return _each("arguments", arguments, refuse_other_than_text)
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise ConfigError(
            f"arguments is {arguments!r}, which no shell could read: {error}."
        ) from None


class _Tune(Protocol[_P1]):
    def __call__(
        self,
        script: str | Path,
        arguments: str | Sequence[str] = (),
        listener: Listener | None = None,
        *rest: _P1.args,
        **choices: _P1.kwargs,
    ) -> TuneAnswer: ...


def _tune_of(
    kind: Callable[_P1, TuneQuestion],
) -> Callable[[Callable[..., TuneAnswer]], _Tune[_P1]]:
    """For type checkers: the script comes before the keywords."""
    return lambda verb: cast("_Tune[_P1]", verb)


@_tune_of(TuneQuestion)
@answers(TuneQuestion, SearchBudget=SearchBudget)
def tune(
    asked: TuneQuestion,
    script: str | Path,
    arguments: str | Sequence[str] = (),
    listener: Listener | None = None,
) -> TuneAnswer:
    """Find the fastest configuration of a script by short runs, as ``--autotuning=tune`` does.

    ``arguments`` are the script's arguments, such as ``("--config", "config.json")``, or one line
    of them as a shell reads it; the ``listener`` gets each event of the search. Results go to the
    working directory, unless the script's settings name a folder.

    Raises:
        ConfigError: a keyword, a setting or the script is wrong.
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    if why := refuse_other_than_path(script):
        raise ConfigError(f"script is {script!r}; {why}.")
    if listener is not None and not callable(listener):
        raise ConfigError(f"listener is {listener!r}; it must be a function of an event.")
    words = _words(arguments)
    ends: list[Finished] = []

    def hear(event: Event) -> None:
        if isinstance(event, Finished):
            ends.append(event)
        if listener is not None:
            listener(event)

    run_tune(tune_request(asked, str(script), words), hear)
    end = ends[-1] if ends else None
    if end is None or end.winner is None or end.folder is None:
        raise NothingFeasibleError("The search ended without a measured configuration.")
    return TuneAnswer(winner=end.winner, text=end.text, folder=end.folder)
