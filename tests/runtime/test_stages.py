"""Models cut into pipeline stages: where they can be, in one process, and what two ranks keep."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.core import DegreeLimits, Layout, Precision, stages_obstacle
from autoconf_launch.runtime.stages import stage_split

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")


def look_at(model: nn.Module, batch: Any = None) -> DegreeLimits:
    """As the profile run does."""

    def loss(one: nn.Module) -> Tensor:
        output = one(**models.batches(1)[0]) if batch is None else one(batch)
        found: Tensor = getattr(output, "loss", output)
        return found

    return stage_split(model, loss, Precision.FP32)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [("own_deep", 4), ("own_placed", 3), ("llama", 2), ("qwen2", 2), ("gpt2", 2), ("bert", 2)],
)
def test_a_model_of_equal_blocks_can_be_cut_between_them(name: str, blocks: int) -> None:
    model = models.build(name)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    limits = look_at(model)
    assert limits == DegreeLimits(key="pipeline", most=("repeated blocks", blocks)), limits
    assert f"use at most {blocks}." in str(limits.obstacle(blocks + 1))
    assert list(model.state_dict()) == list(before)
    assert all(weight.grad is None for weight in model.parameters())


class Chain(nn.Module):
    """Blocks between two layers; a subclass does what stages cannot."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(depth)])
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = start = self.first(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.end(start, x)

    def end(self, start: Tensor, x: Tensor) -> Tensor:
        loss: Tensor = self.last(x).square().mean()
        return loss


class Skipping(Chain):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.words(x[:, 0].long()))

    def end(self, start: Tensor, x: Tensor) -> Tensor:
        return super().end(start, x + start.detach())


class UsedTwice(Chain):
    def end(self, start: Tensor, x: Tensor) -> Tensor:
        return super().end(start, self.first(x))


class Scaled(Chain):
    """Its scale stands before the blocks and works after them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def end(self, start: Tensor, x: Tensor) -> Tensor:
        return super().end(start, x * self.scale)


class Shared(Chain):
    def __init__(self) -> None:
        super().__init__()
        first, *_, last = self.blocks
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        first.weight = last.weight


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Chain(1), "the model has no repeated blocks (a ModuleList of at least two"),
        (nn.Sequential(Chain(), Skipping()), "2 lists of repeated blocks (0.blocks, 1.blocks)"),
        (Skipping(), "more than one hidden state goes from block to block"),
        (UsedTwice(), "first.weight is used after its first blocks"),
        (Scaled(), "scale is used after its first blocks"),
        (Shared(), "blocks.0.weight and blocks.2.weight share one weight that stages would"),
    ],
)
def test_a_model_that_stages_cannot_share_out_is_said_why(model: nn.Module, says: str) -> None:
    assert says in str(look_at(model, torch.ones(2, 4)).obstacle(2))


def test_a_plain_chain_can_be_cut() -> None:
    assert look_at(Chain(), torch.ones(2, 4)).missing is None


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout(pipeline_parallel=4), "parallelism.pipeline is 4, but the model has 3 repeated"),
        (Layout(pipeline_parallel=2, virtual_pipeline=2), "x virtual_pipeline 2 = 4 stages, but"),
        (Layout(pipeline_parallel=2, pipeline_split=(2, 2)), "[2, 2], whose sum is 4, but the"),
        (Layout(pipeline_parallel=3), "None"),
        (Layout(pipeline_parallel=2, pipeline_split=(2, 1)), "None"),
    ],
)
def test_stages_beyond_the_blocks_are_refused_with_how_many_there_are(
    layout: Layout, says: str
) -> None:
    assert says in str(stages_obstacle(layout, 3))


@pytest.mark.parametrize("stages_each", [1, 2])
def test_the_last_stage_keeps_the_logits_of_one_micro_batch(
    launch: Callable[..., Any], stages_each: int
) -> None:
    parallelism = {"pipeline": 2, "virtual_pipeline": stages_each}
    ended = launch("kept_logits.py", json.dumps(parallelism), ranks=2)
    assert ended.exit_codes == (0, 0), ended.errors
    kept = json.loads(ended.outputs[1])
    assert kept["made"] >= 2 * 8
    assert kept["alive"] == 1
