"""Counts against published totals: config files and model cards of the models' authors.

The last ones are those of transformers' own classes with these shapes.
"""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.cost import active_parameters, parameters
from autoconf_launch.tuning_spaces import named_model

with (Path(__file__).parents[2] / "data" / "published_weights.csv").open(newline="") as file:
    PUBLISHED = {row["model"]: int(row["weights"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_a_named_model_has_its_published_number_of_weights(name: str, published: int) -> None:
    assert parameters(named_model(name)) == published


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("qwen3-235b-a22b", 22.2), ("deepseek-v3", 37.6)],
)
def test_a_token_passes_only_the_experts_chosen_for_it(name: str, billions: float) -> None:
    assert active_parameters(named_model(name)) / 1e9 == pytest.approx(billions, abs=0.05)


def test_experts_and_their_absence_decide_which_weights_a_token_passes() -> None:
    assert active_parameters(named_model("gpt2")) == parameters(named_model("gpt2"))
    every = named_model("mixtral-8x7b")
    assert every.experts
    half = replace(every, experts=replace(every.experts, every=2))
    # 16 layers have one perceptron in place of eight and a router
    perceptron, router = 3 * 4096 * 14336, 8 * 4096
    assert parameters(every) - parameters(half) == 16 * (7 * perceptron + router)
