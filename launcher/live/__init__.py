"""The view of a running tune on a terminal."""

from .choice import can_draw, open_live, open_view, wants_live
from .lines import LinesView, wrap_sentences
