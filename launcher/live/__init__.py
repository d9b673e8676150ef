"""What a tune shows on a terminal while it runs."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .choice import View, can_draw, open_live, open_view, wants_live
    from .lines import LinesView, wrap_sentences
    from .view import LiveView
else:
    __getattr__ = attach(
        __name__,
        {
            ".choice": "View can_draw open_live open_view wants_live",
            ".lines": "LinesView wrap_sentences",
            ".view": "LiveView",
        },
    )
