"""Answers of the verbs for Python as a notebook shows them. Not: what they say (report)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from autoconf_launch.autotuner.space import Record

from .estimates import FitAnswer, PlanAnswer, Recommendation
from .inference import (
    FitInferenceAnswer,
    PlanInferenceAnswer,
    fit_inference_text,
    plan_inference_text,
)
from .pages import HtmlPage, plan_page, recommend_page, text_html, tune_page, write_page
from .report import fit_text, plan_text, recommend_text
from .results import read_results

_T = TypeVar("_T")


class Shown(ABC):
    """An answer that is the text of the command in a notebook, its tables as tables."""

    __slots__ = ()

    @abstractmethod
    def _text(self) -> str:
        """What the command prints."""

    def __str__(self) -> str:
        return self._text()

    def _repr_html_(self) -> str:
        return text_html(self._text())


class ShownWithCharts(Shown):
    """An answer that has a page."""

    __slots__ = ()

    @abstractmethod
    def _page(self) -> HtmlPage:
        """What the command writes."""

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
    """What a search found; ``folder`` has its files, ``text`` is what the command prints."""

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
