"""NVIDIA's grids as candidates, and their order."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .candidates import (
        NemoCandidate,
        PlannerCandidate,
        PlannerGrid,
        PlannerGridQuestion,
        SearchedModel,
        limit_candidates,
        minimum_nodes,
        minutes_limit,
        nemo1_name,
        nemo2_name,
        nemo_candidates,
        planner_grid,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
