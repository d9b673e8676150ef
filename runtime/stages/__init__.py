"""A live model as stages of a pipeline."""

from .cut import Places, blocks_to_cut, find_places, make_stages, stage_split
from .stage import Stage, StageError
