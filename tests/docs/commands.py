"""Shell commands of README and the documents, as a reader would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
FIVE_MINUTES = "five minutes"
"""Marks the block that ``end_to_end/test_first_five_minutes.py`` runs."""
_BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*) -->\n)?```sh\n(?P<text>.*?)```", re.DOTALL)
_BARE = re.compile(r"```(?:bash|console|shell)?\n(?:autoconf-launch|pip|make|python) ")


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one block; ``mark`` is a comment before it, which a reader of the page never sees.

    ``not run: REASON``: its commands cannot run here, and are only parsed.
    """

    document: Path
    mark: str
    lines: tuple[tuple[str, ...], ...]

    @property
    def is_run(self) -> bool:
        return not self.mark


def blocks(document: Path) -> Iterator[Block]:
    """Blocks of shell commands, in order; each command as its words."""
    for match in _BLOCK.finditer(document.read_text()):
        lines = match["text"].replace("\\\n", " ").splitlines()
        words = tuple(tuple(shlex.split(line, comments=True)) for line in lines)
        yield Block(document, match["mark"] or "", tuple(filter(None, words)))


def has_unmarked_commands(document: Path) -> bool:
    """True if commands are in a block that is not called ``sh``, so that no test would see it."""
    return _BARE.search(document.read_text()) is not None
