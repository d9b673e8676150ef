"""A base configuration in another framework's words: one row here, one module each.

Not: a search's optimum, which has a layout and no model (the folder above).
"""

from __future__ import annotations

from importlib import import_module

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.core import ConfigError, RawConfig, nearest_known

from .page import Exported, comments, with_whole_steps

BASE_EXPORTERS = {
    "nemo1": "autoconf_launch.nemo.export.nemo1_file:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_call:nemo2",
    "megatron": "autoconf_launch.launcher.export.megatron_flags:megatron",
    "torchtitan": "autoconf_launch.launcher.export.torchtitan:torchtitan",
    "torchtitan_module": "autoconf_launch.launcher.export.torchtitan_module:torchtitan_module",
}
SUFFIXES = {
    "nemo1": ".yaml",
    "nemo2": ".py",
    "megatron": ".args",
    "torchtitan": ".toml",
    "torchtitan_module": ".py",
}
"""What an export's file is called after the framework's name."""


def export_base(document: RawConfig, framework: str) -> Exported:
    """A base configuration of either layout as this framework's file, code or arguments.

    Raises:
        ConfigError: the framework is unknown or has no such models, or the document lacks values.
    """
    if framework not in BASE_EXPORTERS:
        raise ConfigError(
            f"A base configuration cannot be exported to {framework!r}; "
            f"{nearest_known(framework, BASE_EXPORTERS)}"
        )
    module, _, name = BASE_EXPORTERS[framework].partition(":")
    exporter = getattr(import_module(module), name)
    base, notes = with_whole_steps(pretraining(document))
    exported: Exported = exporter(base, document)
    return Exported(text=comments(notes) + exported.text, left_out=(*notes, *exported.left_out))


__all__ = ["BASE_EXPORTERS", "SUFFIXES", "export_base"]
