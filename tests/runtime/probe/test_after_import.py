"""Modules that are changed when their import is done."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from autoconf_launch.runtime.redirect import change_on_import

NAME = "imported_late"


@pytest.fixture(autouse=True)
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that nobody has imported yet."""
    (tmp_path / f"{NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    sys.modules.pop(NAME, None)


def doubles(module: ModuleType) -> None:
    module.value *= 2  # type: ignore[attr-defined]


def fails(module: ModuleType) -> None:
    raise AttributeError(module.__name__)


def value() -> int:
    found: int = import_module(NAME).value
    return found


def test_a_module_is_changed_when_it_is_imported() -> None:
    change_on_import({NAME: doubles})
    assert value() == 2


def test_one_that_is_there_is_changed_at_once() -> None:
    assert value() == 1
    change_on_import({NAME: doubles})
    assert value() == 2


def test_two_who_wait_for_the_same_module_both_change_it() -> None:
    change_on_import({NAME: doubles})
    change_on_import({NAME: doubles})
    assert value() == 4


def test_a_change_that_does_not_fit_leaves_the_module_as_it_is() -> None:
    change_on_import({NAME: fails})
    assert value() == 1
