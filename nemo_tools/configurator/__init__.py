"""AutoConfigurator: NeMo 2.0's Python interface on our grids, runs and tables."""

from .configurator import AutoConfigurator, SearchResults
