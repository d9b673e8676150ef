"""The same folder, searched again with other lists, with the real command and real ranks."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SMALL, Place

OPEN = {name: value for name, value in SMALL.items() if name != "gradient_accumulation_steps"}


def search(place: Place, sizes: list[int]) -> tuple[int, str]:
    document: dict[str, Any] = {**OPEN, "train_batch_size": 4}
    place.write_config({**document, "train_micro_batch_size_per_gpu": sizes})
    return place.tune("--budget=2trials")


@pytest.mark.slow
def test_lists_that_change_keep_what_was_measured(place: Place) -> None:
    code, output = search(place, [1, 2])
    assert code == 0, output
    code, output = search(place, [2, 4])
    assert code == 0, output
    assert "1 of 2 earlier trials are used again; 1 not, as micro_batch 1 is no" in output, output
    summary = place.summary()
    assert summary["baseline"] == "z0_gas2_tmbspg2"
