"""The number of samples in a call's arguments."""

from typing import Any

import pytest
import torch

from autoconf_launch.runtime.model import SampleCounter


def of_shapes(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.zeros(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("argument", "hints", "samples"),
    [
        (of_shapes((4, 32), (4,)), [4], 4),
        (of_shapes((4, 32), (4,)), [], 4),
        (of_shapes((2, 32), (2,)), [2], 2),
        (of_shapes((3, 8, 9), (3, 7, 9), (3, 5, 5), (3, 4, 4)), [4], 4),
        (of_shapes((3, 8, 9), (3, 7, 9)), [], 2),
        (of_shapes((3, 8, 8), (3, 8, 8)), [2], 2),
        ([{"a": 1}, {"a": 2}, {"a": 3}], [], 3),
    ],
)
def test_a_list_holds_the_parts_of_a_batch_or_its_samples(
    argument: Any, hints: list[int], samples: int
) -> None:
    assert SampleCounter().count((argument, 0), {}, hints) == samples


def test_the_tensor_that_has_the_loaders_size_is_counted_from_then_on() -> None:
    counter = SampleCounter()
    for objects, images in ((16, 8), (13, 8), (5, 3)):
        boxes, pictures = of_shapes((objects, 4), (images, 3, 9, 9))
        assert counter.count(({"cls": boxes, "img": pictures},), {}, [8]) == images
