"""The engine that a training script holds, from configuration to timed steps."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .engine import ConfigSource, Engine, initialize
else:
    __getattr__ = lazy_names(__name__, __file__)
