"""The profile run: a live model as a ModelSpec."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .profile import Profiler
    from .trace import trace_model
else:
    __getattr__ = lazy_names(__name__, __file__)
