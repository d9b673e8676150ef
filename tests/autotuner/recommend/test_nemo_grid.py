"""The grids of ``grid=nemo``: NVIDIA's rules, and that a gap in them is said."""

from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.autotuner.recommend.nemo_grid import (
    Grid,
    GridOverrides,
    GridQuestion,
    nemo_grid,
    stages_of,
)
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.recommend_tables import grid_rows

from .expected import cases

_LISTS = {
    "tensor": "tensor_parallel_sizes",
    "pipeline": "pipeline_parallel_sizes",
    "micro_batch": "micro_batch_sizes",
    "context": "context_parallel_sizes",
    "expert": "expert_parallel_sizes",
}
_ENDS = {"least_product": "min_model_parallel_size", "most_product": "max_model_parallel_size"}


def overrides(settings: dict[str, Any]) -> GridOverrides:
    given: dict[str, Any] = {}
    for ours, key in _LISTS.items():
        if isinstance(value := settings.get(key), list):
            given[ours] = tuple(value)
    for ours, key in _ENDS.items():
        if isinstance(value := settings.get(key), int):
            given[ours] = value
    return GridOverrides(**given)


def asked(family: str, size_b: float, layers: int, sequence: int, memory: float) -> GridQuestion:
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
    found = nemo_grid(grid_rows(generation), asked(family, size_b, layers, sequence, memory))
    assert found is not None
    return found


@pytest.mark.parametrize("case", cases("expected_grid_unit_tests.json"), ids=str)
def test_the_axes_are_those_of_nemo_s_own_unit_tests(case: dict[str, Any]) -> None:
    settings, expected = case["train_cfg"], case["expected"]
    memory = settings["gpu_memory_gb"]
    question = asked(
        case["family"], case["model_size_in_b"], case["num_layers"], case["seq_length"], memory
    )
    found = nemo_grid(grid_rows(1), question, overrides(settings))
    assert found is not None
    ours = {
        "tp": list(found.tensor),
        "pp": list(found.pipeline),
        "mbs": list(found.micro_batch),
        "cp": list(found.context),
        "ep": list(found.expert),
        "min_par": found.least_product,
        "max_par": found.most_product,
    }
    assert {name: ours[name] for name in expected} == expected


def test_stages_of_t5_count_both_stacks() -> None:
    assert stages_of(6, is_encoder_decoder=True) == (1, 2, 4, 6, 12)


def test_nemo2_has_fewer_micro_batches_and_a_global_batch() -> None:
    found = grid("llama", 7, 32, 2048, generation=2)
    assert (found.micro_batch, found.global_batch) == ((1, 2, 4, 8), 2048)


def test_bert_of_nemo2_reaches_its_own_rules() -> None:
    """NVIDIA's tool takes it for a GPT and never does."""
    assert grid("bert", 4, 48, 512, generation=2).tensor == (1, 2, 4)


@pytest.mark.parametrize(
    ("size_b", "sequence"), [(70, 8192), (5, 65536), (300, 4096), (1101, 2048)]
)
def test_a_question_that_no_rule_covers_is_never_silently_a_default(
    size_b: float, sequence: int
) -> None:
    found = grid("gpt3", size_b, 80, sequence)
    assert found.tensor == (1, 2, 4, 8)
    assert "grid=planner covers it" in found.note


def test_a_rule_that_covers_says_nothing() -> None:
    assert grid("gpt3", 5, 24, 2048).note == ""


@pytest.mark.parametrize(("family", "memory"), [("gpt3", 141), ("falcon", 80)])
def test_other_memories_and_families_have_no_grid(family: str, memory: float) -> None:
    assert nemo_grid(grid_rows(1), asked(family, 5, 24, 2048, memory)) is None


def test_a_bert_above_all_rules_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at most 250\.5 billion"):
        grid("bert", 251, 96, 512)
