"""The site of the documents: built strictly, complete, and without a request to other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autoconf_launch
from autoconf_launch.launcher.verbs import LAUNCHING, VERBS

from .commands import ROOT

pytest.importorskip("mkdocs", reason="the site needs: pip install -e '.[docs]'")
pytest.importorskip("mkdocstrings", reason="the site needs: pip install -e '.[docs]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "links"], cwd=ROOT, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_it_has_the_help_of_every_verb_and_every_public_name(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    titles = re.findall(r'<h2 id="[^"]*">([^<]*)<', text)
    assert titles == ["autoconf-launch", *LAUNCHING, *VERBS]
    assert text.count("usage: autoconf-launch") >= len(titles)
    text = (site / "reference" / "python.html").read_text()
    documented = set(re.findall(r'<h3 id="[^"]*\.(\w+)"', text))
    assert documented >= set(autoconf_launch.__all__)
    assert ":func:" not in text


def test_its_pages_begin_with_the_readme_and_ask_no_other_host(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert "pip install ." in re.sub(r"<[^>]+>", "", text)
    assert 'href="guides/buyer.html"' in text
    assert "CONTRIBUTING.md" not in text
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"', page.read_text())
        styles = re.findall(r'<link[^>]* href="(https?:[^"]*)"', page.read_text())
        assert not loaded
        assert not styles
