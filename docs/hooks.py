"""What the site is made of beside the files in this folder: README, and every ``--help``.

A hook of MkDocs. Links to files that are not part of the site become plain text there; on the
repository's own pages they stay links.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
_WIDTH = "96"


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """The text of a page, generated where it is not written."""
    path = page.file.src_uri
    if path == "index.md":
        path, markdown = "../README.md", (ROOT / "README.md").read_text(encoding="utf-8")
    if path == "reference/commands.md":
        markdown += "".join(map(_help, _verbs()))
    return _LINK.sub(lambda link: _site_link(link, path, page.file.src_uri, files), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name functions by roles of Sphinx, which mkdocstrings does not know."""
    return re.sub(r":(?:func|class|mod):(?=<code>)", "", html)


def _site_link(link: re.Match[str], written_in: str, shown_on: str, files: Any) -> str:
    """A link that holds on the site; its text alone where the site lacks what it leads to."""
    target, hash_, anchor = link[2].partition("#")
    if "://" in target or not target:
        return link[0]
    place = os.path.normpath(PurePosixPath("docs", written_in).parent / target)
    if not place.startswith("docs/") or files.get_file_from_path(place[5:]) is None:
        return link[1]
    way = os.path.relpath(place[5:], PurePosixPath(shown_on).parent)
    return f"[{link[1]}]({way}{hash_}{anchor})"


def _verbs() -> tuple[str, ...]:
    from autoconf_launch.launcher.verbs import LAUNCHING, VERBS

    return ("", *LAUNCHING, *VERBS)


def _help(verb: str) -> str:
    command = (sys.executable, "-m", "autoconf_launch", *verb.split(), "--help")
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "build",
        env={**os.environ, "COLUMNS": _WIDTH},
    )
    return f"\n## {verb or 'autoconf-launch'}\n```text\n{done.stdout.rstrip()}\n```\n"
