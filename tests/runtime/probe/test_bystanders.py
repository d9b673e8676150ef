"""Models and tensors that are alive besides the one that is trained."""

from __future__ import annotations

import json

import pytest

from autoconf_launch.core import Mode, decode
from autoconf_launch.core.rank import FIRST_FORWARD_FILE, FirstForward

from .conftest import Probed

LAYER = 4 * 512 * 512
ALIVE = {
    "Ema": 2 * LAYER,
    "Teacher": 2 * LAYER,
    "Closed": LAYER,
    "Late": LAYER,
    "Shared": LAYER // 2,
    "tensors": 4 * 512 * 1024,
}


def bystanders(probed: Probed, kind: str) -> dict[str, int]:
    ended = probed("bystanders.py", kind, mode=Mode.FIRST_FORWARD)
    path = ended.folder / FIRST_FORWARD_FILE
    assert path.exists(), f"{ended.errors[-2000:]} {ended.signs()}"
    found = decode(FirstForward, json.loads(path.read_text()))
    assert found.model.parameters == 2 * 512 * 512
    return {one.name: one.size_bytes for one in found.bystanders}


@pytest.mark.parametrize("kind", ["sent", "named"])
def test_what_was_sent_to_the_device_counts_and_what_stayed_does_not(
    probed: Probed, kind: str
) -> None:
    assert bystanders(probed, kind) == ALIVE


def test_a_script_that_sends_nothing_has_all_models_in_one_place(probed: Probed) -> None:
    """But for what it sends to the host, and for data sets, whose batches are sent."""
    assert bystanders(probed, "plain") == ALIVE | {"OnHost": LAYER}
