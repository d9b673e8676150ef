from typing import Any

import pytest
from torch import nn

from autoconf_launch.runtime.model import find_block_lists, repeated_blocks


def linear(count: int) -> list[nn.Module]:
    return [nn.Linear(2, 2) for _ in range(count)]


def test_a_list_of_equal_modules_is_found_by_its_path(tiny: Any) -> None:
    assert [found.name for found in find_block_lists(tiny.Tiny())] == ["blocks"]


def test_only_the_outermost_list_counts() -> None:
    inner = [nn.Sequential(*linear(3)) for _ in range(2)]
    assert len(repeated_blocks(nn.ModuleList(inner))) == 2


def test_lists_of_lists_are_entered() -> None:
    model = nn.ModuleList([nn.ModuleList(linear(2)), nn.ModuleList(linear(3))])
    assert [found.name for found in find_block_lists(model)] == ["0", "1"]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(nn.ModuleList(linear(1)), id="a single module"),
        pytest.param(nn.Sequential(nn.Linear(2, 2), nn.Embedding(2, 2)), id="several classes"),
        pytest.param(nn.Sequential(nn.ReLU(), nn.ReLU()), id="no weights"),
    ],
)
def test_other_lists_are_not_repeated_blocks(model: nn.Module) -> None:
    assert repeated_blocks(model) == ()


def test_a_list_can_be_cut_and_made_whole_again(tiny: Any) -> None:
    model = tiny.Tiny(layers=4)
    found = find_block_lists(model)[0]
    pieces = found.pieces
    found.keep(pieces[:1])
    assert len(model.blocks) == 1
    found.keep(pieces)
    assert tuple(model.blocks) == pieces
