"""Whole tunes on one GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

TOTAL_MIB = torch.cuda.mem_get_info()[1] >> 20 if torch.cuda.is_available() else 0


def test_a_baseline_that_is_out_of_memory_is_launched_once_and_a_smaller_batch_wins(
    tune: Callable[..., Any],
) -> None:
    sample = f"--sample_mib={TOTAL_MIB // 12}"
    answer = tune("large_batch.py", "--batch_size=16", "--grad_accum=1", sample)
    assert answer.code == 0, answer.text
    assert answer.failures() == ["out_of_memory"], answer.text
    assert "Best: " in answer.text


def test_a_memory_limit_below_the_card_is_one(tune: Callable[..., Any]) -> None:
    limit_mib = TOTAL_MIB // 2
    sample = f"--sample_mib={limit_mib // 6}"
    answer = tune(
        "large_batch.py",
        "--batch_size=8",
        "--grad_accum=1",
        sample,
        flags=(f"--memory-limit={limit_mib}MiB",),
    )
    assert answer.code == 0, answer.text
    assert answer.failures() == ["out_of_memory"], answer.text
    measured = [one["measurement"] for one in answer.outcomes if one.get("measurement")]
    peaks = [use["peak_bytes"] for one in measured for use in _memory(one)]
    assert peaks, answer.text
    assert max(peaks) <= limit_mib << 20, answer.text


def _memory(value: Any) -> list[dict[str, Any]]:
    """Every ``MemoryUse`` inside a record."""
    if isinstance(value, dict):
        own = [value] if "peak_bytes" in value else []
        return own + [use for part in value.values() for use in _memory(part)]
    if isinstance(value, list):
        return [use for part in value for use in _memory(part)]
    return []


def test_an_index_out_of_range_shows_the_traceback_of_the_script(tune: Callable[..., Any]) -> None:
    answer = tune(
        "index_out_of_range.py", "--batch_size=2", flags=("--allow-global-batch-change",)
    )
    assert answer.code == 3, answer.text
    assert "the probe failed" not in answer.text
    assert "device-side assert triggered" in answer.text
    assert re.search(r"index_out_of_range\.py\"?, line \d+", answer.text), answer.text
