"""Texts as users see them, kept whole: a changed line is a decision.

``FREEZE=1 pytest tests/end_to_end`` with ``-k "as_it_was or one_line"`` writes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "frozen"
WRITES = os.environ.get("FREEZE") == "1"


def check_frozen(name: str, text: str) -> None:
    """Compare a text with the golden file."""
    path = FOLDER / name
    if WRITES:
        path.write_text(text)
    assert text == path.read_text()


def check_frozen_sentence(line: str, sentence: str) -> None:
    """Compare what a command line is answered with; all are kept in one file."""
    path = FOLDER / "sentences.txt"
    kept = dict(_pairs(path.read_text() if path.exists() else ""))
    if WRITES:
        kept[line] = sentence
        path.write_text("".join(f"$ {key}\n{kept[key]}\n" for key in sorted(kept)))
    assert sentence == kept.get(line)


def _pairs(text: str) -> list[tuple[str, str]]:
    blocks = text.removeprefix("$ ").split("\n$ ") if text else []
    pairs = (block.partition("\n") for block in blocks)
    return [(line, sentence.removesuffix("\n")) for line, _, sentence in pairs]
