"""Tables of cases whose keys read as the behaviour of their test."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def rows(names: str, table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Parametrise a test by ``table``: from what each case shows to its values."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))
