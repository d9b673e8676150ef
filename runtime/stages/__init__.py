"""A live model as stages of a pipeline."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .cut import Places, blocks_to_cut, find_places, make_stages, stage_split
    from .stage import Stage, StageError
else:
    __getattr__ = lazy_names(__name__, __file__)
