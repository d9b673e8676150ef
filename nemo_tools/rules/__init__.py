"""NVIDIA's grids as candidates, and their order."""

from .candidates import (
    NemoCandidate,
    SearchedModel,
    limit_candidates,
    minimum_nodes,
    minutes_limit,
    nemo1_name,
    nemo2_name,
    nemo_candidates,
)
from .planned_grid import PlannerCandidate, PlannerGrid, PlannerGridQuestion, planner_grid
