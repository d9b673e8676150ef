"""A page as a real headless Chromium shows it, and what is in it for plotly."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
    "--dump-dom",
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def open_page(page: Path, folder: Path, script: str = "") -> str:
    """The document after it was drawn and ``script`` ran in it.

    The page's own policy refuses every request, and a refused one is an error on the console.

    Raises:
        AssertionError: something was written to the console.
    """
    copy = folder / "opened.html"
    text = page.read_text()
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    command = (str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'browser'}", copy.as_uri())
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def title_of(dom: str) -> str:
    """Title of a document."""
    found = re.search(r"<title>(.*?)</title>", dom)
    assert found is not None
    return html.unescape(found[1])


def figures(page: Path) -> list[dict[str, Any]]:
    """The charts of a page, as plotly is given them."""
    found = re.findall(r'class="figure"[^>]*>(.*?)</script>', page.read_text(), flags=re.DOTALL)
    return [json.loads(one) for one in found]
