"""AutoConfigurator: NeMo 2.0's Python interface on our grids, runs and tables."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .configurator import AutoConfigurator, SearchResults
    from .recipe import is_fiddle
else:
    __getattr__ = lazy_names(__name__, __file__)
