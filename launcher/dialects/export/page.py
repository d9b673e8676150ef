"""What is exported and what comes out, with an account of what found no words. Not: any words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.knobs import KNOBS
from autoconf_launch.core import Candidate, KeyPath, Layout, Precision, RawConfig

_FOLLOWS = ("data_parallel",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The winner of a results folder; ``precision`` is None where nothing says it."""

    name: str
    candidate: Candidate
    nodes: int = 1
    precision: Precision | None = None

    @property
    def layout(self) -> Layout:
        """Layout of the candidate."""
        return self.candidate.layout

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one machine."""
        return self.layout.world_size // self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A framework's file or arguments; ``left_out`` tells what it cannot express."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class Page:
    """A document in the making that remembers which knobs it has expressed."""

    optimum: Optimum
    document: RawConfig = field(default_factory=lambda: RawConfig({}))
    _said: set[str] = field(default_factory=set)
    _notes: list[str] = field(default_factory=list)

    def say(self, path: KeyPath, value: Any, *knobs: str) -> None:
        """Set a key; the knobs that it expresses are done."""
        self.document = self.document.with_value(path, value)
        self._said.update(knobs)

    def done(self, *knobs: str) -> None:
        """These knobs are expressed by what stands there, or by the framework's defaults."""
        self._said.update(knobs)

    def cannot(self, knob: str, instead: str) -> None:
        """A knob has no words here; ``instead`` is what the reader can do."""
        self._said.add(knob)
        self._notes.append(f"{knob} = {shown(self._value(knob))}: {instead}")

    def left_out(self) -> tuple[str, ...]:
        """Sentences on every knob that is neither at its default nor expressed."""
        rest = [
            f"{knob} = {shown(self._value(knob))}: no word for it"
            for knob in self._unusual()
            if knob not in self._said
        ]
        return (*self._notes, *rest)

    def _unusual(self) -> list[str]:
        layout = self.optimum.layout
        names = [
            knob.name
            for knob in KNOBS
            if knob.name not in _FOLLOWS and getattr(layout, knob.name) != _plain(knob.name)
        ]
        return [*names, *(name for name, _ in self.optimum.candidate.extras)]

    def _value(self, knob: str) -> Any:
        extras = dict(self.optimum.candidate.extras)
        return extras[knob] if knob in extras else getattr(self.optimum.layout, knob)


def comments(exported: tuple[str, ...], *, mark: str = "#") -> str:
    """Sentences as lines of comment."""
    return "".join(f"{mark} not expressed: {sentence}\n" for sentence in exported)


def shown(value: Any) -> Any:
    """A value for people."""
    return value.value if isinstance(value, Enum) else value


def _plain(knob: str) -> Any:
    return getattr(Layout(), knob)
