"""Experts of a live model that ranks can share out, and their profile."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.core import BlockSpec, Grade
from autoconf_launch.runtime.parallel import expert_split
from autoconf_launch.runtime.profile.describe import describe

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")


class Experts(nn.Module):
    """A user's own."""

    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self.num_experts = count
        self.up = nn.Parameter(torch.zeros(count, 8, 4))
        self.bias = nn.Parameter(torch.zeros(count, 4))

    def forward(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        return hidden


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_experts = 6
        self.weight = nn.Parameter(torch.zeros(6, 8))

    def forward(self, hidden: Tensor, a: Any, b: Any) -> Tensor:
        return hidden


@pytest.mark.parametrize(
    ("model", "degree", "says"),
    [
        (
            "mixtral",
            3,
            "must divide the model's 4 experts of model.layers.*.mlp.experts; use 1, 2",
        ),
        ("qwen3_moe", 16, "must divide the model's 8 experts of model.layers.*.mlp.experts"),
        ("llama", 2, "parallelism.expert is 2, but LlamaForCausalLM has no experts"),
    ],
)
def test_the_degree_must_divide_the_experts(model: str, degree: int, says: str) -> None:
    assert says in str(expert_split(models.build(model)).obstacle(degree))


@pytest.mark.parametrize(("degree", "fits"), [(1, True), (2, True), (4, False), (6, True)])
def test_a_users_own_experts_count(degree: int, fits: bool) -> None:
    limits = expert_split(nn.Sequential(nn.Linear(2, 2), Router(), Experts()))
    assert limits.counts == (("experts of 2", 6),)
    assert (limits.obstacle(degree) is None) is fits


def test_a_router_alone_is_not_shared_out() -> None:
    assert expert_split(nn.Sequential(Router())).obstacle(2) is not None


def test_a_profile_tells_the_weights_of_experts_and_how_many_see_a_token() -> None:
    model, batch = models.build("mixtral"), models.batches(1)[0]

    def forward(samples: int) -> Tensor:
        loss: Tensor = model(**{name: part[:samples] for name, part in batch.items()}).loss
        return loss

    spec = describe(model, forward, Grade.MEASURED).spec
    block: BlockSpec = next(block for block in spec.blocks if block.name == "model.layers")
    assert block.expert_parameters == 4 * 3 * 32 * 64
    assert block.experts_per_token == 2
    assert [b.expert_parameters for b in spec.blocks if b is not block] == [0, 0]
    assert spec.expert_split == expert_split(model)
