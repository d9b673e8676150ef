from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch.autotuner.space import CandidateTable, space_name, space_numbers
from autoconf_launch.core import Candidate, Layout


@pytest.mark.parametrize(
    ("degrees", "name"),
    [
        ({"zero_stage": 3}, "z3"),
        ({"zero_stage": 3, "tensor_parallel": 2}, "tensor"),
        ({"pipeline_parallel": 2}, "pipeline"),
        ({"pipeline_parallel": 2, "tensor_parallel": 2}, "3d"),
        ({"expert_parallel": 2, "pipeline_parallel": 2}, "expert"),
        ({"context_parallel": 2, "expert_parallel": 2}, "context"),
    ],
)
def test_a_layout_belongs_to_the_family_that_stands_last_in_a_staged_search(
    degrees: dict[str, Any], name: str
) -> None:
    assert space_name(Layout(**degrees)) == name


def test_rows_have_the_numbers_of_a_staged_search() -> None:
    layouts = (Layout(zero_stage=2), Layout(tensor_parallel=2), Layout(context_parallel=2))
    table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
    assert space_numbers(table).tolist() == [2, 4, 8]
