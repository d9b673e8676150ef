"""What a tune shows on a terminal while it runs."""

from .choice import View, can_draw, open_live, open_view, wants_live
from .lines import LinesView, wrap_sentences
