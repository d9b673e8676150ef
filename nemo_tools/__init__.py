"""NVIDIA's tools under their names, installed as ``autoconf_launch.nemo``.

``AutoConfigurator``, ``generate_configs`` and ``get_results`` have the interface of NeMo
2.0's Auto Configurator; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .configurator import AutoConfigurator
    from .recipes import generate_configs, get_results
else:
    __getattr__ = attach(
        __name__,
        {
            ".configurator": "AutoConfigurator",
            ".recipes": "generate_configs get_results",
        },
    )

__all__ = ["AutoConfigurator", "generate_configs", "get_results"]


def __dir__() -> list[str]:
    return sorted(__all__)
