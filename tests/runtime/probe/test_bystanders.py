"""Models and tensors that are alive besides the trained one."""

import json
from pathlib import Path

import pytest

from autoconf_launch.core import FIRST_FORWARD_FILE, FirstForward, Mode, decode

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


SLICES = """
import sys

import torch

device, sent = sys.argv[1] or None, sys.argv[2] == "sent"
data = torch.zeros(4096, 256, device=None if sent else device)
model = torch.nn.Linear(256, 4).to(device)
part = data[8:16]
model(part.to(device) if sent else part).sum().backward()
"""
DATA_BYTES = 4 * 4096 * 256


@pytest.mark.parametrize(
    ("device", "when", "kept"),
    [("cuda", "made", DATA_BYTES), ("", "made", DATA_BYTES), ("cuda", "sent", 0)],
)
def test_a_data_set_whose_slices_are_the_batches_is_no_part_of_the_pass(
    probed: Probed, tmp_path: Path, device: str, when: str, kept: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SLICES)
    ended = probed(script, device, when, mode=Mode.FIRST_FORWARD)
    found = decode(FirstForward, json.loads((ended.folder / FIRST_FORWARD_FILE).read_text()))
    assert sum(one.size_bytes for one in found.bystanders) == kept
    assert sum(block.activation_bytes for block in found.model.blocks) < DATA_BYTES // 64
    assert max(peak.peak_bytes for peak in found.peaks) < DATA_BYTES // 16
