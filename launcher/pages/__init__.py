"""Answers as one HTML file each: charts and tables that need no network."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .markup import text_html
    from .page import Cell, Chart, HtmlPage, Table, page_html, write_page
    from .plan import plan_page
    from .recommend import recommend_page
    from .tune import tune_page
else:
    __getattr__ = attach(
        __name__,
        {
            ".markup": "text_html",
            ".page": "Cell Chart HtmlPage Table page_html write_page",
            ".plan": "plan_page",
            ".recommend": "recommend_page",
            ".tune": "tune_page",
        },
    )
