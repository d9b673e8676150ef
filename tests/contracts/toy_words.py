"""A framework of another package in one file: its dialect and its exporter, by entry points.

The contract suites have each in one line; ``test_toy_words.py`` installs the file.
"""

from __future__ import annotations

from autoconf_launch.launcher.export import Exported, Optimum, Page


def toy(optimum: Optimum) -> Exported:
    """The micro-batch and the accumulation, one on each line."""
    page = Page(optimum)
    page.mark_done("micro_batch", "accumulation")
    layout = optimum.layout
    text = f"batch {layout.micro_batch}\nsteps {layout.accumulation}\n"
    return page.export(text, ".toy")
