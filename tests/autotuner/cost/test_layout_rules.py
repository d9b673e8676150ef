from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.cost import LayoutColumns, broken_rule, rows_obeying
from autoconf_launch.core import Layout, Offload, Recompute
from autoconf_launch.tuning_spaces import named_model

from ..builders import layouts

QWEN = named_model("qwen2-7b")
MIXTRAL = named_model("mixtral-8x7b")


def break_(model: Any = QWEN, layers: int = -1, sequence: int = 4096, **layout: Any) -> str:
    one = Layout(**layout)
    return broken_rule(one, LayoutColumns.from_layouts([one], [layers]), model, sequence)


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ({"tensor_parallel": 8}, "tp=8 does not divide 28 heads; valid: 1 2 4 7 14 28"),
        (
            {"pipeline_parallel": 29},
            "pp=29 is more than 28 layers; valid: 1 to 28",
        ),
        ({"virtual_pipeline": 2}, "vpp=2 needs a pipeline, but pp is 1; valid: 1"),
        (
            {"pipeline_parallel": 4, "virtual_pipeline": 3, "accumulation": 4},
            "vpp=3 x pp=4 leaves more than 5 % of the places of 28 layers empty; valid: 1 7",
        ),
        (
            {"pipeline_parallel": 4, "virtual_pipeline": 7, "accumulation": 6},
            "vpp=7 needs micro-batches in multiples of pp=4, but a step has 6; valid: 1",
        ),
        ({"expert_parallel": 2}, "ep=2 does not divide 1 experts; valid: 1"),
        (
            {"sequence_parallel": True},
            "sequence-parallel needs tp above 1; valid: false, or tp of at least 2",
        ),
        (
            {"offload": Offload.PARAMETERS, "zero_stage": 1},
            "zero=1 keeps weights whole, so that offload=parameters needs another stage; valid: 3",
        ),
    ],
)
def test_a_broken_rule_names_itself_and_the_valid_values(
    layout: dict[str, Any], sentence: str
) -> None:
    assert break_(**layout) == sentence


def test_rules_of_context_expert_and_recompute_degrees_name_what_divides() -> None:
    found = break_(context_parallel=3, sequence=24)
    assert found.endswith("two equal parts for each rank; valid: 1 2 3 4 6 12") or not found
    assert "valid: 1 2" in break_(context_parallel=3, sequence=8)
    assert "does not divide dp x cp = 2" in break_(MIXTRAL, expert_parallel=4, data_parallel=2)
    assert "recompute-layers=2" in break_(layers=2, recompute=Recompute.NONE)


def test_a_table_keeps_the_rows_that_break_no_rule() -> None:
    rows = [Layout(tensor_parallel=size) for size in (1, 4, 8)]
    assert rows_obeying(layouts(*rows), QWEN, 4096).tolist() == [
        True,
        True,
        False,
    ]
    assert break_(tensor_parallel=4, sequence_parallel=True, data_parallel=2) == ""
    assert break_(replace(QWEN, heads=32), tensor_parallel=8) == ""
