"""``--knob KEY=[…]`` for dialects with a document: a list at that key. Not: other knobs."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import ZERO_KNOBS, ConfigError, KeyPath
from autoconf_launch.core import config_keys as keys

from .script_source_facts import ScriptSource

_LAYOUT: dict[str, KeyPath] = {
    "micro_batch": keys.MICRO_BATCH,
    "train_micro_batch_size_per_gpu": keys.MICRO_BATCH,
    "zero_stage": keys.ZERO_STAGE,
    "recompute": keys.RECOMPUTE,
}


def with_listed(source: ScriptSource) -> ScriptSource:
    """The source as if the user had written these lists into the document.

    Raises:
        ConfigError: a knob is an argument, which a document does not have.
    """
    config = source.config
    for knob in source.words.knobs:
        config = config.with_value(_path(knob.name), list(knob.values))
    return replace(source, config=config) if source.words.knobs else source


def _path(name: str) -> KeyPath:
    if name.startswith("-"):
        raise ConfigError(
            f"--knob {name} is an argument, but this script is tuned by its configuration file; "
            "name a key of it, or take --dialect arguments."
        )
    if name in _LAYOUT:
        return _LAYOUT[name]
    return (*keys.ZERO, name) if name in ZERO_KNOBS else tuple(name.split("."))
