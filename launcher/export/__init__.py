"""An optimum, or a base configuration, in another framework's words: one row here each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.core import ConfigError, RawConfig, lazy_names, nearest_known

from ..extension_points import load_reference
from .page import Exported, Optimum, comments, with_whole_steps

if TYPE_CHECKING:
    from .page import NEMO_DEGREES, Page, groups_told, splits_sequence
else:
    __getattr__ = lazy_names(__name__, __file__)


EXPORTERS = {
    "accelerate": "autoconf_launch.launcher.export.optimum:accelerate",
    "deepspeed": "autoconf_launch.launcher.export.optimum:deepspeed",
    "torchtitan": "autoconf_launch.launcher.export.optimum:torchtitan",
    "megatron": "autoconf_launch.launcher.export.optimum:megatron",
    "lightning": "autoconf_launch.launcher.export.optimum:lightning",
    "hf_trainer": "autoconf_launch.launcher.export.optimum:hf_trainer",
    "nemo1": "autoconf_launch.launcher.export.optimum:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_recipe:nemo2",
}
"""An optimum's exporters: ``name -> "module:function"``."""
BASE_EXPORTERS = {
    "nemo1": "autoconf_launch.nemo.export.nemo1_file:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_call:nemo2",
    "megatron": "autoconf_launch.launcher.export.megatron_flags:megatron",
    "torchtitan": "autoconf_launch.launcher.export.torchtitan:torchtitan",
    "torchtitan_module": "autoconf_launch.launcher.export.torchtitan:torchtitan_module",
}
SUFFIXES = {
    "nemo1": ".yaml",
    "nemo2": ".py",
    "megatron": ".args",
    "torchtitan": ".toml",
    "torchtitan_module": ".py",
}
"""What an export's file is called after the framework's name."""


def export_optimum(optimum: Optimum, framework: str) -> Exported:
    """The optimum as this framework's file or arguments.

    Raises:
        ConfigError: the framework is unknown.
    """
    if framework not in EXPORTERS:
        raise ConfigError(f"--to is {framework!r}; {nearest_known(framework, EXPORTERS)}")
    exported: Exported = load_reference(EXPORTERS[framework])(optimum)
    return exported


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
    exporter = load_reference(BASE_EXPORTERS[framework])
    base, notes = with_whole_steps(pretraining(document))
    exported: Exported = exporter(base, document)
    return Exported(text=comments(notes) + exported.text, left_out=(*notes, *exported.left_out))
