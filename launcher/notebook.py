"""Answers of the verbs for Python as a notebook shows them. Not: what they say (report)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from autoconf_launch.autotuner.space import Record

from .estimates import FitAnswer, PlanAnswer, Recommendation
from .pages import plan_page, recommend_page, tune_page, write_page
from .report import clusters_text, fit_text, plan_text, recommend_text, text_html
from .results import read_results

_T = TypeVar("_T")


class ShownFit(FitAnswer):
    """The answer of ``fit``."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(fit_text(self))


class ShownPlan(PlanAnswer):
    """The answer of ``plan``."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(plan_text(self))

    def write_html(self, path: str | Path) -> None:
        """Write the answer with charts as one HTML file, as ``--html`` does.

        Raises:
            ConfigError: the file exists, or the extra ``html`` is not installed.
            ResultsFolderError: it cannot be written.
        """
        write_page(plan_page((self,), plan_text(self)), Path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClusters:
    """The best layout on each of several clusters, the best cluster first."""

    answers: tuple[PlanAnswer, ...]

    def _repr_html_(self) -> str:
        return text_html(clusters_text(self.answers))

    def write_html(self, path: str | Path) -> None:
        """Write the answer with charts as one HTML file, as ``--html`` does.

        Raises:
            ConfigError: the file exists, or the extra ``html`` is not installed.
            ResultsFolderError: it cannot be written.
        """
        write_page(plan_page(self.answers, clusters_text(self.answers)), Path(path))


class ShownRecommendation(Recommendation):
    """The answer of ``recommend``."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(recommend_text(self))

    def write_html(self, path: str | Path) -> None:
        """Write the answer with charts as one HTML file, as ``--html`` does.

        Raises:
            ConfigError: the file exists, or the extra ``html`` is not installed.
            ResultsFolderError: it cannot be written.
        """
        write_page(recommend_page(self, recommend_text(self)), Path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneAnswer:
    """What a search found; ``folder`` has its files, ``text`` is what the command prints."""

    winner: Record
    text: str
    folder: Path

    def _repr_html_(self) -> str:
        return text_html(self.text)

    def write_html(self, path: str | Path) -> None:
        """Write charts and all trials as one HTML file, as ``show --html`` does.

        Raises:
            ConfigError: the file exists, or the extra ``html`` is not installed.
            ResultsFolderError: it cannot be written.
        """
        write_page(tune_page(read_results(self.folder)), Path(path))


def show_as(kind: type[_T], answer: Any) -> _T:
    """The same answer as a type of this module whose base is the type of the answer."""
    return kind(**{field.name: getattr(answer, field.name) for field in fields(answer)})
