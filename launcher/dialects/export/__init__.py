"""An optimum in another framework's words: one row here, one module each. Not: its search."""

from __future__ import annotations

from importlib import import_module

from autoconf_launch.core import ConfigError, nearest_known

from .page import Exported, Optimum

EXPORTERS = {
    "accelerate": "autoconf_launch.launcher.dialects.export.yaml_files:accelerate",
    "deepspeed": "autoconf_launch.launcher.dialects.export.deepspeed_file:deepspeed",
    "torchtitan": "autoconf_launch.launcher.dialects.export.torchtitan_file:torchtitan",
    "megatron": "autoconf_launch.launcher.dialects.export.command_lines:megatron",
    "lightning": "autoconf_launch.launcher.dialects.export.yaml_files:lightning",
    "hf_trainer": "autoconf_launch.launcher.dialects.export.command_lines:hf_trainer",
    "nemo1": "autoconf_launch.launcher.dialects.export.yaml_files:nemo1",
    "nemo2": "autoconf_launch.launcher.dialects.export.nemo2_recipe:nemo2",
}


def export_optimum(optimum: Optimum, framework: str) -> Exported:
    """The optimum as this framework's file or arguments.

    Raises:
        ConfigError: the framework is unknown.
    """
    if framework not in EXPORTERS:
        raise ConfigError(f"--to is {framework!r}; {nearest_known(framework, EXPORTERS)}")
    module, _, name = EXPORTERS[framework].partition(":")
    exported: Exported = getattr(import_module(module), name)(optimum)
    return exported


__all__ = ["EXPORTERS", "Exported", "Optimum", "export_optimum"]
