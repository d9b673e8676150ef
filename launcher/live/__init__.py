"""What a tune shows on a terminal while it runs."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .choice import View, can_draw, open_live, open_view, wants_live
    from .lines import LinesView, wrap_sentences
    from .view import LiveView
else:
    __getattr__ = lazy_names(__name__, __file__)
