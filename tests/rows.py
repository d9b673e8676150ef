"""Tables of cases whose keys read as the behaviour of their test, and values that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pytest

T = TypeVar("T")


def rows(names: str, table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Parametrise a test by ``table``: from what each case shows to its values."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))


def some(value: T | None) -> T:
    """The value, which must not be None."""
    assert value is not None
    return value
