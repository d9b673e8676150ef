"""The grids of ``grid=nemo``: NVIDIA's rules, and that a gap in them is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, Grid, GridQuestion, NoRule, nemo_grid
from autoconf_launch.autotuner.sizing.nemo_axes import stages_of
from autoconf_launch.core import ConfigError, Degrees
from autoconf_launch.tuning_spaces import grid_rows

from .expected import cases

_LISTS = {
    "tensor_parallel": "tensor_parallel_sizes",
    "pipeline_parallel": "pipeline_parallel_sizes",
    "micro_batch": "micro_batch_sizes",
    "context_parallel": "context_parallel_sizes",
    "expert_parallel": "expert_parallel_sizes",
}
_ENDS = {"least_product": "min_model_parallel_size", "most_product": "max_model_parallel_size"}


def overrides(settings: dict[str, Any]) -> Degrees:
    given: dict[str, Any] = {}
    for ours, key in _LISTS.items():
        if isinstance(value := settings.get(key), list):
            given[ours] = tuple(value)
    for ours, key in _ENDS.items():
        if isinstance(value := settings.get(key), int):
            given[ours] = value
    return Degrees(**given)


def ask(family: str, size_b: float, layers: int, sequence: int, memory: float) -> GridQuestion:
    return GridQuestion(
        family=Family(family),
        size_b=size_b,
        layers=layers,
        sequence=sequence,
        gpu_memory_gb=memory,
    )


def grid(
    family: str, size_b: float, layers: int, sequence: int, memory: float = 80, generation: int = 1
) -> Grid:
    found = nemo_grid(grid_rows(generation), ask(family, size_b, layers, sequence, memory))
    assert isinstance(found, Grid)
    return found


@pytest.mark.parametrize("case", cases("expected_grid_unit_tests.json"), ids=str)
def test_the_axes_are_those_of_nemo_s_own_unit_tests(case: dict[str, Any]) -> None:
    settings, expected = case["train_cfg"], case["expected"]
    memory = settings["gpu_memory_gb"]
    question = ask(
        case["family"], case["model_size_in_b"], case["num_layers"], case["seq_length"], memory
    )
    found = nemo_grid(grid_rows(1), question, overrides(settings))
    assert isinstance(found, Grid)
    assert found.note == ""
    ours: dict[str, Any] = {
        "mbs": list(found.degrees.micro_batch or ()),
        "min_par": found.degrees.least_product,
        "max_par": found.degrees.most_product,
    }
    ours |= zip(("tp", "pp", "cp", "ep"), map(list, found.degrees.mesh_axes), strict=True)
    assert {name: ours[name] for name in expected} == expected


def test_a_rule_that_covers_says_nothing_and_stages_count_both_stacks() -> None:
    assert stages_of(6, is_encoder_decoder=True) == (1, 2, 4, 6, 12)
    assert grid("gpt3", 5, 24, 2048).note == ""


def test_nemo2_has_its_own_micro_batches_batch_and_bert_rules() -> None:
    found = grid("llama", 7, 32, 2048, generation=2)
    assert (found.degrees.micro_batch, found.global_batch) == ((1, 2, 4, 8), 2048)
    # NVIDIA's tool takes it for a GPT and never does.
    assert grid("bert", 4, 48, 512, generation=2).degrees.tensor_parallel == (1, 2, 4)
    with pytest.raises(ConfigError, match=r"at most 250\.5 B"):
        grid("bert", 251, 96, 512)


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize(
    ("family", "size_b", "sequence", "memory", "why"),
    [
        ("falcon", 5, 2048, 80, "the family falcon: its rules are for baichuan2, bert, "),
        ("gpt3", 5, 2048, 141, "gpt3 on 141 GB: its rules are for 40 and 80 GB"),
        ("t5", 3, 512, 24, "t5 on 24 GB: its rules are for 40 and 80 GB"),
        ("bert", 4, 512, 192, "bert on 192 GB: its rules are for 40 and 80 GB"),
        (
            "llama",
            5,
            65536,
            80,
            "llama with 65536 tokens on 80 GB: its rules are for 2048, 4096, 8192, 16384, 32768 "
            "tokens",
        ),
        (
            "mixtral",
            141,
            8192,
            80,
            "mixtral of 141 B with 8192 tokens on 80 GB: its rules end at 45 B",
        ),
        ("gpt3", 1101, 2048, 40, "gpt3 of 1101 B with 2048 tokens on 40 GB: its rules end at 110"),
        ("mt5", 251, 512, 80, "mt5 of 251 B with 512 tokens on 80 GB: its rules end at 250 B"),
    ],
)
def test_what_no_rule_covers_has_no_grid_but_a_reason(
    generation: int, family: str, size_b: float, sequence: int, memory: float, why: str
) -> None:
    found = nemo_grid(grid_rows(generation), ask(family, size_b, 96, sequence, memory))
    assert isinstance(found, NoRule)
    assert f"NeMo has no rule for {why}" in found.why


@pytest.mark.parametrize("family", ["t5", "mt5", "bert"])
def test_nemo2_has_no_rule_for_longer_samples_than_it_takes(family: str) -> None:
    assert isinstance(nemo_grid(grid_rows(2), ask(family, 3, 24, 2048, 80)), Grid)
    found = nemo_grid(grid_rows(2), ask(family, 3, 24, 4096, 80))
    assert isinstance(found, NoRule)
    assert found.why == (
        f"NeMo has no rule for {family} with 4096 tokens on 80 GB: its rules are for at most "
        "2048 tokens"
    )


@given(
    st.sampled_from(("gpt3", "llama", "t5", "bert")),
    st.floats(0.01, 250),
    st.sampled_from((512, 2048, 3000, 8192, 1 << 20)),
    st.sampled_from((24.0, 40.0, 80.0, 141.0)),
)
def test_a_model_that_nvidia_does_not_ship_never_falls_to_defaults(
    family: str, size_b: float, sequence: int, memory: float
) -> None:
    found = nemo_grid(grid_rows(1), ask(family, size_b, 24, sequence, memory))
    covered = [row for row in grid_rows(1) if row.bound_b is not None]
    assert isinstance(found, NoRule) or any(
        (found.degrees.tensor_parallel, found.degrees.micro_batch)
        == (row.degrees.tensor_parallel, row.degrees.micro_batch)
        for row in covered
    )


@pytest.mark.parametrize("generation", [1, 2])
def test_a_search_that_nvidia_ships_runs_on_the_defaults_of_its_tool_and_says_so(
    generation: int,
) -> None:
    question = replace(ask("llama", 70, 80, 8192, 80), is_shipped=True)
    found = nemo_grid(grid_rows(generation), question)
    assert isinstance(found, Grid)
    assert found.degrees.mesh_axes[:2] == ((1, 2, 4, 8), (1,))
    assert "NeMo has no rule for llama of 70 B" in found.note


def test_a_user_s_own_lists_need_no_rule_and_bound_the_products() -> None:
    lists = Degrees(
        tensor_parallel=(2, 4),
        pipeline_parallel=(1, 4),
        micro_batch=(1,),
        context_parallel=(1, 2),
    )
    found = nemo_grid(grid_rows(2), ask("llama", 70, 80, 65536, 80), lists)
    assert isinstance(found, Grid)
    assert found.degrees.mesh_axes == ((2, 4), (1, 4), (1, 2), (1,))
    assert (found.degrees.least_product, found.degrees.most_product) == (2, 32)
    assert "none is needed" in found.note
