"""An optimum in another framework's words: one row here, one module each. Not: its search."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from autoconf_launch.core import ConfigError, lazy_names, nearest_known

from .page import Exported, Optimum

if TYPE_CHECKING:
    from .bases import BASE_EXPORTERS, SUFFIXES, export_base
    from .page import Page, comments, groups_told, splits_sequence
    from .yaml_files import NEMO_DEGREES
else:
    __getattr__ = lazy_names(__name__, __file__)


EXPORTERS = {
    "accelerate": "autoconf_launch.launcher.export.yaml_files:accelerate",
    "deepspeed": "autoconf_launch.launcher.export.files:deepspeed",
    "torchtitan": "autoconf_launch.launcher.export.files:torchtitan",
    "megatron": "autoconf_launch.launcher.export.command_lines:megatron",
    "lightning": "autoconf_launch.launcher.export.yaml_files:lightning",
    "hf_trainer": "autoconf_launch.launcher.export.command_lines:hf_trainer",
    "nemo1": "autoconf_launch.launcher.export.yaml_files:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_recipe:nemo2",
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
