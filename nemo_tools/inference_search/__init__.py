"""The inference half of the verb search: points, engines, runs, results."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .engines import INFERENCE_ENGINES, InferenceEngine, load_engine
else:
    __getattr__ = lazy_names(__name__, __file__)
