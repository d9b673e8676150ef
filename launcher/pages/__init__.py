"""Answers as one HTML file each: charts and tables that need no network."""

from .page import Chart, HtmlPage, Table, page_html, text_html, write_page
from .plan import plan_page, recommend_page
from .tune import tune_page
