"""A framework of another package in one file: its dialect and its exporter, by entry points.

The contract suites have each in one line; ``test_toy_words.py`` installs the file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from autoconf_launch.launcher.export import Exported, Optimum, Page
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import (
    FrameworkFacts,
    Spelled,
    Spelling,
    TableDialect,
    Variable,
)


class ToyDialect(TableDialect):
    """Scripts that import toytrain, which reads its batch from variables."""

    name = "toy"
    framework = FrameworkFacts(
        package="toytrain", newest=(2, 0), readers=("toytrain",), variables=("TOY_",)
    )

    def detects(self, source: ScriptSource) -> bool:
        return source.facts.imports("toytrain")

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        return (
            Spelling(knob="micro_batch", places=(Variable("TOY_BATCH"),)),
            Spelling(knob="accumulation", places=(Variable("TOY_STEPS"),), default=1),
        )


def toy(optimum: Optimum) -> Exported:
    """The micro-batch and the accumulation, one on each line."""
    page = Page(optimum)
    page.mark_done("micro_batch", "accumulation")
    layout = optimum.layout
    text = f"batch {layout.micro_batch}\nsteps {layout.accumulation}\n"
    return page.export(text, ".toy")


def install_toys(folder: Path) -> None:
    """Install this file into a folder of ``sys.path``, with its entry points."""
    shutil.copy(__file__, folder)
    installed = folder / "toytrain-2.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toytrain\nVersion: 2.1\n")
    (installed / "entry_points.txt").write_text(
        "[autoconf_launch.dialect]\ntoy = toy_words:ToyDialect\n"
        "[autoconf_launch.exporter]\ntoy = toy_words:toy\n"
    )
