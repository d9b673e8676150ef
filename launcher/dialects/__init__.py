"""How frameworks spell knobs: one table of spellings each, one row here. Not: any decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoconf_launch.core import ConfigError, lazy_names, nearest_known

from ..script import NamedFile, OwnKnob, ScriptSource, SpaceFile, UserWords
from ..spelling import Dialect, Rendered, RenderedFile, TrialNeeds, UserSettings, on_source_batch
from .accelerate import AccelerateDialect
from .any_script import DATALOADER_BATCH_VARIABLE, ArgumentsDialect, DataLoaderDialect
from .deepspeed import DeepSpeedDialect, out_of_reach
from .hf_trainer import HfTrainerDialect, written_in_source
from .lightning import LightningDialect
from .megatron import MegatronDialect
from .native import NativeDialect
from .torchtitan import TorchtitanDialect

if TYPE_CHECKING:
    from .accelerate import PREFIXES
    from .deepspeed import decoded
    from .deepspeed_file import ZERO_KEYS
    from .native import SPELLINGS
else:
    __getattr__ = lazy_names(__name__, __file__)


DIALECTS: tuple[Dialect, ...] = (
    NativeDialect(),
    TorchtitanDialect(),
    MegatronDialect(),
    HfTrainerDialect(),
    LightningDialect(),
    AccelerateDialect(),
    DeepSpeedDialect(),
    ArgumentsDialect(),
    DataLoaderDialect(),
)
"""The first that knows a script is taken; the last two are for what no other knows."""
_LAST_RESORT = ("arguments", "dataloader")


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectChoice:
    """The dialect of a script, and what the user is to know of the choice."""

    dialect: Dialect
    notes: tuple[str, ...] = ()


def find_dialect(source: ScriptSource) -> Dialect:
    """See :func:`choose_dialect`."""
    return choose_dialect(source).dialect


def choose_dialect(source: ScriptSource) -> DialectChoice:
    """The dialect that the user named, or the first that knows the script.

    Raises:
        ConfigError: none does, or the named one does not exist.
    """
    wanted = source.words.dialect
    if wanted is not None:
        named = {dialect.name: dialect for dialect in DIALECTS}
        if wanted not in named:
            raise ConfigError(f"--dialect is {wanted!r}; {nearest_known(wanted, named)}")
        return DialectChoice(dialect=named[wanted])
    fits = [dialect for dialect in DIALECTS if dialect.detects(source)]
    special = [dialect for dialect in fits if dialect.name not in _LAST_RESORT]
    own = out_of_reach(source)
    if not fits:
        raise ConfigError(
            own
            or written_in_source(source)
            or on_source_batch(source)
            or "The script names no configuration file with keys that can be tuned; give one with "
            "--config FILE (JSON, hjson or YAML) among the script's arguments. If the script "
            'hands its file to initialize, add "autotuning": {} to it. If it has arguments of its '
            "own, name that of the batch: --arg train_micro_batch_size_per_gpu=--batch_size."
        )
    taken = (special or fits)[0]
    if len(special) < 2:
        return DialectChoice(dialect=taken, notes=(own,) if own and not special else ())
    names = " and ".join(dialect.name for dialect in special)
    note = f"{names} both know this script; {taken.name} is taken (--dialect decides)."
    return DialectChoice(dialect=taken, notes=(note,))


__all__ = [
    "DATALOADER_BATCH_VARIABLE",
    "DIALECTS",
    "Dialect",
    "DialectChoice",
    "NamedFile",
    "OwnKnob",
    "Rendered",
    "RenderedFile",
    "ScriptSource",
    "SpaceFile",
    "TrialNeeds",
    "UserSettings",
    "UserWords",
    "choose_dialect",
    "find_dialect",
]
