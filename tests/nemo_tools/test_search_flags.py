"""Flags of a search that contradict each other."""

from __future__ import annotations

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search_flags import parse_search


def test_a_dry_run_collects_nothing() -> None:
    with pytest.raises(ConfigError, match="--dry-run writes nothing, but --collect writes"):
        parse_search(["--dry-run", "--collect", "search_config=gpt3/5b"])
