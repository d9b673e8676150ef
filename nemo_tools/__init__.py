"""NVIDIA's tools under their names, installed as ``autoconf_launch.nemo``.

``AutoConfigurator``, ``generate_configs`` and ``get_results`` are those of NeMo 2.0's Auto
Configurator; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoconf_launch.launcher.auto_configurator.configurator import AutoConfigurator

    from .recipes import generate_configs, get_results

_HOME = {
    "AutoConfigurator": "autoconf_launch.launcher.auto_configurator.configurator",
    "generate_configs": f"{__name__}.recipes",
    "get_results": f"{__name__}.recipes",
}
__all__ = ["AutoConfigurator", "generate_configs", "get_results"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
