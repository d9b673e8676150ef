"""Spellings of knobs by frameworks: one file for each, one row here."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from autoconf_launch.core import ConfigError

from ..extension_points import find_reference, load_extension, references
from ..script import ScriptSource
from ..spelling import Dialect, FrameworkFacts, on_no_batch
from .accelerate import AccelerateDialect
from .any_script import DATALOADER_BATCH_VARIABLE
from .builtin import BuiltinDialect, document_of
from .deepspeed import ZERO_KEYS, DeepSpeedDialect, decode_document, on_configuration_in_source
from .hf_trainer import HfTrainerDialect, on_arguments_in_source
from .megatron import MegatronDialect
from .torchtitan import TorchtitanDialect

_LAST_RESORT = ("document", "arguments", "dataloader")
"""Dialects for scripts that no other dialect knows."""
DIALECTS = MappingProxyType(
    {
        "native": "autoconf_launch.launcher.dialects.builtin:BuiltinDialect",
        "torchtitan": "autoconf_launch.launcher.dialects.torchtitan:TorchtitanDialect",
        "megatron": "autoconf_launch.launcher.dialects.megatron:MegatronDialect",
        "hf_trainer": "autoconf_launch.launcher.dialects.hf_trainer:HfTrainerDialect",
        "lightning": "autoconf_launch.launcher.dialects.lightning:LightningDialect",
        "accelerate": "autoconf_launch.launcher.dialects.accelerate:AccelerateDialect",
        "deepspeed": "autoconf_launch.launcher.dialects.deepspeed:DeepSpeedDialect",
        "document": "autoconf_launch.launcher.dialects.any_script:DocumentDialect",
        "arguments": "autoconf_launch.launcher.dialects.any_script:ArgumentsDialect",
        "dataloader": "autoconf_launch.launcher.dialects.any_script:DataLoaderDialect",
    }
)
"""Name -> ``module:attribute``, in the order of detection; dialects of other packages
(entry-point group ``autoconf_launch.dialect``) come before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectChoice:
    """The dialect of a script, and a note on the choice for the user."""

    dialect: Dialect
    notes: tuple[str, ...] = ()


def every_dialect() -> list[Dialect]:
    """Our dialects and dialects of other packages, in the order of detection."""
    return [_make(r) for r in references("dialect", DIALECTS).values()]


def _make(reference: str) -> Dialect:
    made: Dialect = load_extension("dialect", reference, lambda kind: kind(), "no arguments")
    return made


def framework_facts() -> tuple[FrameworkFacts, ...]:
    """The frameworks of all dialects that have one."""
    found = (dialect.framework for dialect in every_dialect())
    return tuple(framework for framework in found if framework != FrameworkFacts())


def choose_dialect(source: ScriptSource) -> DialectChoice:
    """The dialect that the user named, or the first that knows the script.

    Raises:
        ConfigError: none does, or the named one does not exist.
    """
    wanted = source.words.dialect
    if wanted is not None:
        reference = find_reference("dialect", DIALECTS, wanted, where="--dialect")
        return _choice(_make(reference))
    readers = {name for framework in framework_facts() for name in framework.readers}
    facts, built_in = source.facts, BuiltinDialect()
    is_ours = facts.imports("autoconf_launch") or not facts.imports(*readers)
    if is_ours and built_in.detects(source):  # a script of our runtime is nobody else's
        return DialectChoice(dialect=built_in)
    fits = [d for d in every_dialect() if d.name != built_in.name and d.detects(source)]
    special = [dialect for dialect in fits if dialect.name not in _LAST_RESORT]
    own = on_configuration_in_source(source)
    if not fits:
        raise ConfigError(own or on_arguments_in_source(source) or _on_unknown(source))
    first = (special or fits)[0]
    if len(special) < 2:
        return _choice(first, *((own,) if own and not special else ()))
    names = " and ".join(dialect.name for dialect in special)
    note = f"{names} both match this script; using {first.name} (change it with --dialect)."
    return _choice(first, note)


def _choice(dialect: Dialect, *notes: str) -> DialectChoice:
    if tool := dialect.framework.unproven:
        notes += (
            f"Dialect {dialect.name} is experimental: its names were checked, but never by a run "
            f"of {tool}; check what the trials ran.",
        )
    return DialectChoice(dialect=dialect, notes=notes)


def _on_unknown(source: ScriptSource) -> str:
    if any(facts.imports("autoconf_launch") for facts in source.all_facts):
        return (
            "The script names no configuration file with keys that can be tuned; give one with "
            "--config FILE (JSON, hjson or YAML) among the script's arguments, or add "
            '"autotuning": {} to the file that it hands to initialize.'
        )
    may_be = (
        "" if source.text else ' If it hands a file to initialize, add "autotuning": {} to it.'
    )
    return f"{on_no_batch(source)}{may_be}"
