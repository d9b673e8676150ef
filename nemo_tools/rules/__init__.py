"""NVIDIA's grids as candidates, and their order."""

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
