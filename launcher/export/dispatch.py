"""An optimum, or a base configuration, by the exporter that the table names."""

from __future__ import annotations

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.core import ConfigError, RawConfig, nearest_known

from ..exporters import BASE_EXPORTERS, EXPORTERS
from ..extension_points import load_reference
from .page import Exported, Optimum, comments, with_whole_steps


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
