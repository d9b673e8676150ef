"""Parts that tensor ranks share out, in the profile run."""

import itertools

import pytest
from torch import Tensor, nn

from autoconf_launch.core import BlockSpec, Grade, ModelSpec
from autoconf_launch.runtime.profile.describe import describe, piece_times

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")
HEAD, TOKENS, WIDTH, WORDS = models.HEAD, models.TOKENS, models.WIDTH, models.WORDS
FLOAT = 4


def spec_of(name: str, *, timed: bool = False) -> ModelSpec:
    model = models.build(name)
    batch = models.batches(1)[0]

    def forward(samples: int) -> Tensor:
        output = model(**{key: part[:samples] for key, part in batch.items()})
        loss: Tensor = getattr(output, "loss", output)
        return loss

    ticks = itertools.count()
    clock = (lambda: float(next(ticks))) if timed else None
    return describe(model, forward, Grade.MEASURED, clock).spec


def block(spec: ModelSpec, name: str) -> BlockSpec:
    return next(one for one in spec.blocks if one.name == name)


def test_weights_and_modules_of_a_block_are_split_by_the_plan() -> None:
    split = block(spec_of("own"), "blocks").split
    assert split is not None
    # Four matrices of attention, up and down; biases of columns only.
    assert split.parameters == 12 * WIDTH**2 + 3 * WIDTH + 4 * WIDTH
    assert (split.columns, split.rows) == (4, 2)


def test_a_sample_keeps_queries_keys_values_and_the_perceptron_split() -> None:
    split = block(spec_of("own"), "blocks").split
    assert split is not None
    kept = TOKENS * WIDTH * FLOAT
    sums = TOKENS * (WIDTH // HEAD) * FLOAT
    # Queries, keys, values (one projection each), attention's output and its sums, the two sides
    # of the activation function.
    assert split.activation_bytes == pytest.approx((3 + 1 + 4 + 4) * kept + sums, rel=0.1)


def test_all_products_of_a_block_are_split() -> None:
    found = block(spec_of("own"), "blocks")
    assert found.split is not None
    assert found.split.flops == found.flops > 0


def test_a_head_that_is_the_embedding_is_tied() -> None:
    spec = spec_of("own_tied")
    assert block(spec, "head").tied_parameters == WORDS * WIDTH
    assert block(spec_of("own"), "head").tied_parameters == 0


def test_heads_are_those_of_the_configuration() -> None:
    spec = spec_of("qwen2")
    assert (spec.heads, spec.kv_heads, spec.head_size) == (4, 2, HEAD)
    assert spec_of("own").heads is None


def test_a_model_without_a_plan_has_no_split_part() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    inputs = Tensor([[1.0, 2.0], [3.0, 4.0]])
    spec = describe(model, lambda n: model(inputs[:n]).sum(), Grade.MEASURED).spec
    assert {one.split for one in spec.blocks} == {None}


def test_times_of_pieces_add_up_to_the_pass() -> None:
    """A clock that ticks once a reading gives each lap one second."""
    model, batch = models.build("own"), models.batches(1)[0]
    ticks = itertools.count()
    found = piece_times(model, lambda: model(**batch), lambda: float(next(ticks)))
    # Laps: to, through and between four modules of attention and two of the perceptron; before,
    # between and after these.
    assert found["blocks.0"] == (7.0 + 3.0 + 3.0, 7.0 + 3.0)
    assert sum(whole_s for whole_s, _ in found.values()) == 3 * 13.0 + 1.0 + 3.0


def test_timed_blocks_carry_their_share() -> None:
    found = block(spec_of("own", timed=True), "blocks")
    assert found.split is not None
    assert 0 < found.split.forward_s < found.forward_s
