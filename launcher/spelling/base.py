"""The extension point Dialect, and checks of a framework's version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    GlobalBatchRule,
    KnobChoice,
    LayoutValue,
)
from autoconf_launch.core import (
    OUTPUT,
    Candidate,
    ConfigError,
    RawConfig,
    Recompute,
    Workload,
)

from ..script import ScriptSource
from .launch_inputs import (
    find_argument,
)

_SHORTEST = 2
"""Most steps without a middle step."""
Version: TypeAlias = tuple[int, int]
NEWEST: Version = (9999, 0)
GLOBAL_BATCH = "global_batch"
"""In tables like a knob, but it follows from the knobs of the batch."""
CANONICAL = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "train_batch_size": GLOBAL_BATCH,
    "zero_optimization.stage": "zero_stage",
    "activation_checkpointing.mode": "recompute",
}
"""Names in the configuration file of knobs that other frameworks have, too."""
SWITCHED: tuple[tuple[Any, LayoutValue], ...] = (
    (False, Recompute.NONE),
    (True, Recompute.FULL),
)
"""Words of a switch that turns on recomputation of whole blocks."""
MEASURED = ("micro_batch", "accumulation", "zero_stage", "recompute")
"""Knobs that a probe finds in a live training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """The user's values and open choices, in canonical knobs.

    ``workload`` has no model yet; ``awaits_profile``: the profile run will show the batch;
    ``notes`` report detections, ``warnings`` need an action.
    """

    baseline: Candidate
    choices: tuple[KnobChoice, ...]
    batch_rule: GlobalBatchRule
    workload: Workload
    settings: AutotuningSettings
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    awaits_profile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file next to the configuration; ``name`` has no folder."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A candidate as this framework spells it.

    Attributes:
        config: content of the trial's file; if the framework reads no such file, the values that
            were set.
        environment: variables of the ranks in addition to their own.
        before: the document that ``config`` is compared with; None: the user's document.
        checked: knobs that a probe must find as requested, each with the word that requests it;
            None: all that our own runtime reports.
    """

    config: RawConfig
    script_args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[RenderedFile, ...] = ()
    before: RawConfig | None = None
    checked: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNeeds:
    """The requirements of a trial on its launch.

    Attributes:
        steps: the last optimizer step that it may make.
        accumulation: micro-batches per step.
        evaluates: whether the script's evaluation, if it has one, must run within the steps.
        saves: whether its checkpoint must be saved within the steps, into :attr:`output`.
    """

    folder: str
    steps: int
    accumulation: int = 1
    evaluates: bool = False
    saves: bool = False

    @property
    def save_after(self) -> int:
        """The step after which a checkpoint is saved; the next would be beyond the last step."""
        return self.steps // 2 + 1 if self.steps > _SHORTEST else 1

    @property
    def evaluate_after(self) -> int:
        """The step after which an evaluation runs.

        It may take very long, so it follows the checkpoint, with a step between them or together,
        so that no two steps in a row follow a pause.
        """
        later = self.save_after + 2
        return later if later < self.steps else self.save_after

    @property
    def output(self) -> str:
        """The folder for the script's own output; it does not exist when a launch starts."""
        return f"{self.folder}/{OUTPUT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFacts:
    """Facts about the framework of a dialect, for the readers of scripts.

    Attributes:
        package: its distribution; empty without one.
        oldest: first version of the package whose names are known.
        newest: last version whose names were checked.
        readers: packages of scripts whose documents with our keys it reads itself.
        variables: beginnings of the names of variables that it reads.
        unproven: its name for people, if its dialect was never checked by a run.
    """

    package: str = ""
    oldest: Version = (0, 0)
    newest: Version = NEWEST
    readers: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    unproven: str = ""


class Dialect(Protocol):
    """Reads a user's settings and renders candidates as edits of them, touching nothing else."""

    name: str
    """Its name for ``--dialect``."""

    framework: FrameworkFacts

    is_external: bool
    """Its scripts are not written for our runtime, so a probe measures them."""

    reads_document: bool
    """Ranks read a document with DeepSpeed's keys, in which nothing may be left open. Other
    dialects learn from a profile run the settings that no argument sets."""

    def detects(self, source: ScriptSource) -> bool:
        """True if the script or its document is of this framework."""

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        """The user's settings.

        Raises:
            ConfigError: they are invalid.
        """

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """The document and arguments of a launch of ``candidate``; the file is not written."""

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """A rendered candidate as a trial: it ends early, reports to no tracker and saves nothing.

        ``needs`` may keep the script's own evaluation and checkpoint, early; settings that the
        user has turned off stay off.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """An argument that a version removed; ``now`` replaces it."""

    argument: str
    gone_in: Version
    now: str


def installed_version(source: ScriptSource, package: str) -> Version | None:
    """Major and minor version of a package; None if it is unknown."""
    text = dict(source.versions).get(package)
    numbers = re.findall(r"\d+", text or "")[:2]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def check_version(source: ScriptSource, known: FrameworkFacts) -> tuple[str, ...]:
    """A sentence if the installed version is newer than the table.

    Raises:
        ConfigError: it is older.
    """
    version = installed_version(source, known.package)
    if version is None:
        return ()
    given = dict(source.versions)[known.package]
    if version < known.oldest:
        raise ConfigError(
            f"{known.package} {given} is older than {_text(known.oldest)}, the first one whose "
            "arguments are known here; update it, or take --dialect arguments with --arg."
        )
    if version > known.newest:
        return (
            f"{known.package} {given} is newer than {_text(known.newest)}, the last one whose "
            "arguments were checked; assuming that they are the same.",
        )
    return ()


def refuse_renamed(source: ScriptSource, package: str, renamed: tuple[Renamed, ...]) -> None:
    """Raise ConfigError for an argument that the installed version lacks."""
    version = installed_version(source, package)
    for row in renamed:
        given = find_argument(source.script_args, (row.argument,)) is not None
        if version is not None and version >= row.gone_in and given:
            raise ConfigError(
                f"{row.argument} is not an argument of {package} {dict(source.versions)[package]} "
                f"(gone in {_text(row.gone_in)}); {row.now}."
            )


def _text(version: Version) -> str:
    return ".".join(map(str, version))
