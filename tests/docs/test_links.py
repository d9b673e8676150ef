"""Links inside README and the documents lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .commands import DOCUMENTS, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(document: Path) -> set[str]:
    """Anchors of a document, as GitHub and the site make them."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_leads_somewhere(document: Path) -> None:
    for link in LINK.findall(document.read_text()):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (document.parent / target).resolve() if target else document
        if path == ROOT / "docs" / "reference" / "commands.md":
            continue
        assert path.exists(), f"{document.name} has a link to {link}"
        assert not anchor or anchor in headings(path), f"{document.name} has a link to {link}"
