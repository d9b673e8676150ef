"""Whether a rule of NVIDIA's covers a search's model. Not: the points of its grid (candidates)."""

from __future__ import annotations

from autoconf_launch.autotuner.recommend.nemo_grid import Grid, GridQuestion, NoRule, nemo_grid
from autoconf_launch.autotuner.recommend.nemo_recompute import BLOCK
from autoconf_launch.tuning_spaces.recommend_tables import grid_rows
from autoconf_launch.tuning_spaces.search_configs import is_shipped, predefined

from .question import SearchQuestion
from .settings import GridKind


def grid_question(question: SearchQuestion) -> GridQuestion:
    """The model as the rules of NVIDIA's grids see it."""
    train = question.settings.train
    return GridQuestion(
        family=question.family,
        size_b=question.size_b,
        layers=question.model.layers,
        sequence=train.sequence,
        gpu_memory_gb=train.gpu_memory_gb,
        is_shipped=is_shipped(question.family, question.size_b, train.sequence),
    )


def nemo_grid_of(question: SearchQuestion) -> Grid | NoRule | None:
    """NVIDIA's grid, of the generation that has searches of the family, else of NeMo 2.0.

    Returns:
        None where the planner's grid is asked for.

    Raises:
        ConfigError: the size is above all rules of the family.
    """
    if question.settings.grid is not GridKind.NEMO:
        return None
    is_old = any(one.family == question.family.predefined for one in predefined())
    rows = grid_rows(1 if is_old else 2)
    return nemo_grid(rows, grid_question(question), question.settings.train.grid)


def whose_grid(question: SearchQuestion) -> GridKind:
    """The grid that is searched: the planner's, too, where NVIDIA has no rule."""
    has_rule = isinstance(nemo_grid_of(question), Grid)
    return GridKind.NEMO if has_rule else GridKind.PLANNER


def notes_on_rules(question: SearchQuestion) -> tuple[str, ...]:
    """Where a rule of NVIDIA's is asked for and none covers the model: that, and what it gets."""
    grid = nemo_grid_of(question)
    if isinstance(grid, NoRule):
        return (grid.sentence,)
    if grid is None:
        return ()
    return tuple(note for note in (grid.note, _unused_layers(question)) if note)


def _unused_layers(question: SearchQuestion) -> str:
    """NVIDIA's grids recompute nothing where the base configuration does not."""
    layers = question.settings.train.recompute_layers
    if layers is None or question.model.method == BLOCK:
        return ""
    return (
        f"act_ckpt_layers={list(layers)} is not searched: NVIDIA's grid takes it where the base "
        f"configuration's activations_checkpoint_method is {BLOCK}, and here it is "
        f"{question.model.method or 'null'}; grid=planner searches it."
    )
