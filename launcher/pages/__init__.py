"""Answers as one HTML file each: charts and tables that need no network."""

from .markup import text_html
from .page import Cell, Chart, HtmlPage, Table, page_html, write_page
from .plan import plan_page
from .recommend import recommend_page
from .tune import tune_page
