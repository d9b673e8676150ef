"""Implementations of other packages that cannot be loaded or made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import engine_facts
from autoconf_launch.launcher.dialects import framework_facts
from autoconf_launch.launcher.engines import make_engine
from autoconf_launch.launcher.request import RemoteAccess
from autoconf_launch.nemo.inference_search import load_engine

BROKEN = "class Picky:\n    def __init__(self, wanted, more, and_more, last): ...\n"


def bring(monkeypatch: pytest.MonkeyPatch, folder: Path, point: str, value: str) -> None:
    (folder / "picky.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "picky", raising=False)
    entry = EntryPoint(name="mine", value=value, group=f"autoconf_launch.{point}")
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: EntryPoints((entry,)).select(group=group)
    )


@pytest.mark.parametrize(
    ("point", "use"),
    [
        ("engine", lambda: make_engine(RemoteAccess(engine="mine"))),
        ("dialect", framework_facts),
        ("inference_engine", lambda: load_engine("mine")),
    ],
)
def test_an_entry_point_that_cannot_be_made_is_named(
    point: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, tmp_path, point, "picky:Picky")
    pattern = rf"entry point mine = picky:Picky of autoconf_launch.{point} cannot be used \(Type"
    with pytest.raises(ConfigError, match=pattern):
        use()


@pytest.mark.parametrize("value", ["picky:Missing", "absent_module:Picky"])
def test_an_entry_point_that_leads_nowhere_is_named(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring(monkeypatch, tmp_path, "engine", value)
    with pytest.raises(ConfigError, match=f"The entry point mine = {value} of"):
        engine_facts("mine")
