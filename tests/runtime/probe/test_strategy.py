"""The strategy that really runs is found on the live model, whatever was asked for."""

from typing import Any

import pytest

from autoconf_launch.core import Precision, Recompute

BLOCK = 16 * 32 * 2 + 32 + 16


@pytest.mark.parametrize(
    ("how", "stage", "ranks", "words"),
    [
        ("fsdp2", 3, 2, "FSDP2 in 3 units over mesh 2"),
        ("fsdp2_keeps", 2, 2, "FSDP2 in 3 units over mesh 2"),
        ("fsdp1", 3, 2, "FSDP1 FULL_SHARD in 3 units"),
        ("fsdp1_keeps", 2, 2, "FSDP1 SHARD_GRAD_OP in 3 units"),
        ("tensor_parallel", 0, 1, "2 DTensors (Shard(dim=1),)"),
    ],
)
def test_how_ranks_share_the_model_is_found(
    probed: Any, how: str, stage: int, ranks: int, words: str
) -> None:
    ended = probed("sharded.py", how, ranks=2)
    assert ended.exit_codes == (0, 0), ended.errors
    applied = ended.result().applied
    assert (applied.zero_stage, applied.data_parallel) == (stage, ranks)
    assert words in applied.description


@pytest.mark.parametrize("how", ["fsdp2", "fsdp1"])
def test_sharded_blocks_are_described_whole(probed: Any, how: str) -> None:
    blocks = probed("sharded.py", how, ranks=2).model_info()["blocks"]
    shown = [(block["count"], block["parameters"]) for block in blocks]
    assert (2, BLOCK) in shown


def test_selective_recomputation_is_told_from_full(probed: Any) -> None:
    assert probed("sharded.py", "selective").result().applied.recompute is Recompute.SELECTIVE


def test_autocast_inside_of_the_model_is_seen(probed: Any) -> None:
    assert probed("sharded.py", "bf16").result().applied.precision is Precision.BF16


def test_without_autocast_the_weights_format_is_seen(probed: Any) -> None:
    assert probed("sharded.py", "selective").result().applied.precision is Precision.FP32
