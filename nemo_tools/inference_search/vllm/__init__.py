"""The engine vllm: its own benchmarks in jobs, and batches in one process on this machine."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .engine import VllmEngine
else:
    __getattr__ = lazy_names(__name__, __file__)
