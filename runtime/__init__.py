"""In the rank: applies a configuration to a model and trains it.

The names load at first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .engine import Engine, initialize
    from .parallel import scaled_dot_product_attention
    from .profile import trace_model
else:
    __getattr__ = lazy_names(__name__, __file__)

__all__ = ["Engine", "initialize", "scaled_dot_product_attention", "trace_model"]
