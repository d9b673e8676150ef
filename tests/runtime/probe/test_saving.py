"""Trainings that go on with what they have saved."""

from typing import Any

import pytest

from .conftest import names_of_saved


@pytest.mark.parametrize(
    "how",
    ["loads_after_an_evaluation_in_workers", "loads_what_a_helper_saved", "loads_after_a_fork"],
)
def test_a_checkpoint_is_there_until_the_process_that_saved_it_ends(probed: Any, how: str) -> None:
    ended = probed("saving.py", how)
    assert "loaded" in ended.output, ended.errors


def test_a_checkpoint_in_parts_is_read_back_and_put_away(probed: Any) -> None:
    ended = probed("saving.py", "in_parts")
    saved = names_of_saved(ended.folder)
    assert (ended.output, saved) == ("loaded\n", [".metadata", "__0_0.distcp"])
