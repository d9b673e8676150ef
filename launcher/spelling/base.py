"""The extension point Dialect: how a framework spells knobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from autoconf_launch.autotuner.space import AutotuningSettings, GlobalBatchRule, KnobChoice
from autoconf_launch.core import (
    OUTPUT,
    Candidate,
    ConfigError,
    RawConfig,
    Workload,
)

from ..script import ScriptSource
from .launch_inputs import find_argument


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What the user gave and what they left open, in canonical knobs.

    ``workload`` has no model yet; ``awaits_profile``: the batch is known after the profile run;
    ``notes``: what was detected and is searched; ``warnings``: on what the user should act.
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
    """A file beside the configuration; ``name`` has no folder."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A candidate as this framework spells it.

    Attributes:
        config: is written to the trial's file; where the framework reads no such file, it
            shows what was set.
        script_args: the script's arguments.
        environment: variables that the ranks get beyond their own.
        files: are written beside the configuration.
        before: what ``config`` is compared with to tell what changes; None: the user's document.
        checked: knobs that a probe must find as they were asked, each with the word that asks
            for it; None: all that our own runtime reports.
    """

    config: RawConfig
    script_args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[RenderedFile, ...] = ()
    before: RawConfig | None = None
    checked: tuple[tuple[str, str], ...] | None = None


_SHORTEST = 2
"""Number of steps too short to have a middle one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNeeds:
    """What a trial asks of a launch.

    Attributes:
        folder: the trial's.
        steps: the last optimizer step that it may make.
        accumulation: micro-batches of a step.
        evaluates: it is to have an evaluation within its steps, if the script has any.
        saves: the same of a checkpoint, which goes to :attr:`output`.
    """

    folder: str
    steps: int
    accumulation: int = 1
    evaluates: bool = False
    saves: bool = False

    @property
    def save_after(self) -> int:
        """The step after which a checkpoint comes; a second one would be beyond the steps."""
        return self.steps // 2 + 1 if self.steps > _SHORTEST else 1

    @property
    def evaluate_after(self) -> int:
        """The step after which an evaluation comes.

        It may take longer than anybody waits, so it comes after the checkpoint; with a step
        between them, or else together, so that no two steps in a row have a pause before them.
        """
        later = self.save_after + 2
        return later if later < self.steps else self.save_after

    @property
    def output(self) -> str:
        """A folder for what the script saves; there is none at the start of a launch."""
        return f"{self.folder}/{OUTPUT}"


class Dialect(Protocol):
    """Reads a user's settings and renders candidates as edits of them, touching nothing else."""

    name: str
    """What ``--dialect`` calls it."""

    is_external: bool
    """Whether its scripts are not written for our runtime, so that a probe measures them."""

    reads_document: bool
    """Ranks read a document with DeepSpeed's keys; nothing in it may be left open. Other
    dialects learn from a profile run what no argument sets."""

    def detects(self, source: ScriptSource) -> bool:
        """Whether the script or its document is of this framework."""

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        """The user's settings.

        Raises:
            ConfigError: they cannot mean anything.
        """

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """The document and arguments of a launch of ``candidate``; the file is not written."""

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """A rendered candidate as a trial: it ends early, tells no tracker and saves nothing.

        Where ``needs`` say so the script's own evaluation and checkpoint stay on and come early;
        what the user has turned off stays off.
        """


Version: TypeAlias = tuple[int, int]
NEWEST: Version = (9999, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The versions of a package whose names were checked, both inclusive."""

    package: str
    oldest: Version
    newest: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """An argument that a version took away; ``now`` is what does it since."""

    argument: str
    gone_in: Version
    now: str


def installed_version(source: ScriptSource, package: str) -> Version | None:
    """Major and minor version of a package; None where it is not known."""
    text = dict(source.versions).get(package)
    numbers = re.findall(r"\d+", text or "")[:2]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def check_version(source: ScriptSource, known: Known) -> tuple[str, ...]:
    """A sentence where the installed version is newer than the table.

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
    """Raise ConfigError where an argument is given that the installed version lacks."""
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
