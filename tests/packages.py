"""Installed packages, as far as an interpreter can see."""

from __future__ import annotations

from pathlib import Path

import pytest


def install_extension(
    monkeypatch: pytest.MonkeyPatch, site: Path, point: str, value: str, name: str = "mine"
) -> None:
    """Put ``site`` on the path, with a package that brings one extension."""
    add_package(site, point, value, name)
    monkeypatch.syspath_prepend(site)


def add_package(site: Path, point: str, value: str, name: str) -> None:
    """Install a package with one extension into a folder of the path."""
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[autoconf_launch.{point}]\n{name} = {value}\n")
