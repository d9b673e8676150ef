"""What the site is made of beside the files in this folder: README, help, and keywords.

A hook of MkDocs. Links to files that are not part of the site become plain text there; on the
repository's own pages they stay links.
"""

from __future__ import annotations

import inspect
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
    if path == "reference/python.md":
        markdown = markdown.replace("<!-- tables of keywords -->", keywords())
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


def keywords() -> str:
    """A table of each verb that is a Python function: keyword, flags, type, meaning."""
    import autoconf_launch
    from autoconf_launch.launcher.asked import asked_parameters
    from autoconf_launch.launcher.verbs import question_of_verb

    lines: list[str] = []
    for verb in filter(None, _verbs()):
        function = getattr(autoconf_launch, re.sub(r"\W+", "_", verb), None)
        known = inspect.signature(function).parameters if function else {}
        rows = [one for one in asked_parameters(question_of_verb(verb)) if one.name in known]
        lines += [f"### Keywords of {verb}", "| keyword | flag | type | meaning |"] * bool(rows)
        lines += ["|---|---|---|---|"] * bool(rows)
        for one in rows:
            flags = ", ".join(f"`{flag}`" for part in one.parts for flag in part.flags)
            kind = inspect.formatannotation(known[one.name].annotation)
            cells = (f"`{one.name}`", flags, f"`{kind}`", one.asked.about)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines += [""] * bool(rows)
    return "\n".join(lines)


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
