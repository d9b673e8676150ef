"""An optimum in another framework's words: one row here, one module each. Not: its search."""

from __future__ import annotations

from importlib import import_module

from autoconf_launch.core import ConfigError, nearest_known

from .page import Exported, Optimum

EXPORTERS = {
    "accelerate": "yaml_files:accelerate",
    "deepspeed": "deepspeed_file:deepspeed",
    "torchtitan": "torchtitan_file:torchtitan",
    "megatron": "command_lines:megatron",
    "lightning": "yaml_files:lightning",
    "hf_trainer": "command_lines:hf_trainer",
    "nemo1": "yaml_files:nemo1",
    "nemo2": "nemo2_recipe:nemo2",
}


def export_optimum(optimum: Optimum, framework: str) -> Exported:
    """The optimum as this framework's file or arguments.

    Raises:
        ConfigError: the framework is unknown.
    """
    if framework not in EXPORTERS:
        raise ConfigError(f"--to is {framework!r}; {nearest_known(framework, EXPORTERS)}")
    module, _, name = EXPORTERS[framework].partition(":")
    exported: Exported = getattr(import_module(f".{module}", __name__), name)(optimum)
    return exported


__all__ = ["EXPORTERS", "Exported", "Optimum", "export_optimum"]
