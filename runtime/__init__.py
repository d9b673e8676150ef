"""In the rank: applies a configuration to a model and trains it.

The names load at first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .engine import Engine, initialize
    from .parallel import scaled_dot_product_attention
    from .profile import trace_model
else:
    __getattr__ = attach(
        __name__,
        {
            ".engine": "Engine initialize",
            ".parallel": "scaled_dot_product_attention",
            ".profile": "trace_model",
        },
    )

__all__ = ["Engine", "initialize", "scaled_dot_product_attention", "trace_model"]
