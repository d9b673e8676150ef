"""A study of the campaign, killed twice (``make campaign`` kills ten of them five times)."""

from pathlib import Path

import pytest

from .kills import run_story


@pytest.mark.slow
def test_a_study_that_is_killed_twice_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    assert run_story("fixed", 0, 2, tmp_path).misses == []
