"""What is known of a script before anything is decided. Not: how it is found (scripts)."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import AppliedStrategy, KnobValue, RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """A tuning space that the user named for this run; ``name`` is for people."""

    name: str
    document: RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A configuration file that the script's arguments name.

    Attributes:
        position: index of the argument with its path.
        flag: ``--config_file``; empty where the path stands alone.
        text: its content.
    """

    position: int
    flag: str
    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKnob:
    """A knob that the user gave with its values: ``--knob '--num_workers=[0,2,4]'``."""

    name: str
    values: tuple[KnobValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWords:
    """What the launcher's flags say of a foreign script.

    Attributes:
        dialect: name of the one to take; None: the first that fits.
        arguments: canonical key and the script's argument for it (``--arg``).
        knobs: further knobs with values (``--knob``).
        keep_global_batch: no candidate has another global batch than the user's.
    """

    dialect: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    knobs: tuple[OwnKnob, ...] = ()
    keep_global_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSource:
    """What a dialect may look at.

    Attributes:
        script_args: the script's arguments.
        config: the document that they name; empty where they name none.
        config_argument: index in ``script_args`` that holds its path, if any does.
        space: what ``--tuning-space`` names.
        warnings: of reading these files.
        script: path, module or program, as the user named it.
        text: its source; empty where it cannot be read.
        modules: sources of the script's own modules that it imports.
        composed: dotted keys with values of a configuration that the script composes itself.
        files: further files that the arguments name.
        environment: variables that frameworks read, as the ranks will get them.
        versions: installed frameworks.
        words: what the launcher's flags say.
        applied: what the profile run found in rank 0; None before it.
        keeps_batch: with another micro-batch the script itself changes its accumulation, so that
            a step has the same samples, as a second profile run showed.
    """

    script_args: tuple[str, ...]
    config: RawConfig
    config_argument: int | None
    space: SpaceFile | None = None
    warnings: tuple[str, ...] = ()
    script: str = ""
    text: str = ""
    modules: tuple[str, ...] = ()
    composed: tuple[tuple[str, KnobValue], ...] = ()
    files: tuple[NamedFile, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    words: UserWords = UserWords()
    applied: AppliedStrategy | None = None
    keeps_batch: bool = False
