"""The extension point Dialect: how a framework spells knobs. Not: which values are good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.space import GlobalBatchRule, KnobChoice
from autoconf_launch.core import Candidate, RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """A tuning space that the user named for this run; ``name`` is for people."""

    name: str
    document: RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSource:
    """What a dialect may look at.

    Attributes:
        script_args: the script's arguments.
        config: the document that they name; empty where they name none.
        config_argument: index in ``script_args`` that holds its path, if any does.
        space: what ``--tuning-space`` names.
        warnings: of reading these files.
    """

    script_args: tuple[str, ...]
    config: RawConfig
    config_argument: int | None
    space: SpaceFile | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What the user gave and what they left open, in canonical knobs."""

    baseline: Candidate
    choices: tuple[KnobChoice, ...]
    batch_rule: GlobalBatchRule
    facts: TrainingFacts
    settings: AutotuningSettings
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A candidate as this framework spells it; ``config`` is written to the trial's file."""

    config: RawConfig
    script_args: tuple[str, ...]


class Dialect(Protocol):
    """Reads a user's settings and renders candidates as edits of them, touching nothing else."""

    def detects(self, source: ScriptSource) -> bool:
        """Whether the script or its document is of this framework."""

    def read(
        self,
        source: ScriptSource,
        *,
        world_size: int,
        overrides: tuple[tuple[str, str], ...] = (),
        allow_global_batch_change: bool = False,
    ) -> UserSettings:
        """The user's settings.

        Raises:
            ConfigError: they cannot mean anything.
        """

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """The document and arguments of a launch of ``candidate``; the file is not written."""
