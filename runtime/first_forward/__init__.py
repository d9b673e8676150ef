"""Stops an external script at its first forward pass and describes its model."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .first_forward import FirstForwardProbe
else:
    __getattr__ = lazy_names(__name__, __file__)
