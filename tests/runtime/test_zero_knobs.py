"""Further knobs of ZeRO on real ranks: each is found on the live model, and losses stay."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from autoconf_launch.core import AppliedStrategy, ConfigError, decode
from autoconf_launch.runtime.engine import initialize

CASES: list[tuple[int, dict[str, Any]]] = [
    (0, {"bucket_cap_mb": 1, "gradient_as_bucket_view": False}),
    (1, {"bucket_cap_mb": 7, "parameters_as_bucket_view": True}),
    (2, {"blocks_per_unit": 2, "forward_prefetch": 2}),
    (2, {"blocks_per_unit": 3}),
    (3, {"blocks_per_unit": 2, "forward_prefetch": 1}),
    (3, {"reshard_root": False, "forward_prefetch": 3}),
]
OF_FOUR_RANKS: list[tuple[int, dict[str, Any]]] = [
    (3, {"shard_ranks": 2}),
    (3, {"reshard_after_forward": 2, "blocks_per_unit": 2}),
]
DEFAULTS = {
    0: {"bucket_cap_mb": 25, "gradient_as_bucket_view": True},
    1: {
        "bucket_cap_mb": 25,
        "gradient_as_bucket_view": True,
        "parameters_as_bucket_view": False,
    },
    2: {"blocks_per_unit": 1, "forward_prefetch": 0, "shard_ranks": True},
    3: {
        "blocks_per_unit": 1,
        "forward_prefetch": 0,
        "shard_ranks": True,
        "reshard_after_forward": True,
        "reshard_root": True,
    },
}

PLAIN: list[tuple[int, dict[str, Any]]] = [(stage, {}) for stage in DEFAULTS]


@dataclass(frozen=True, kw_only=True)
class Seen:
    losses: tuple[float, ...]
    applied: AppliedStrategy


def train(launch: Callable[..., Any], cases: list[tuple[int, dict[str, Any]]], ranks: int) -> Any:
    configs = [
        {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 4 // ranks,
            "zero_optimization": {"stage": stage, **knobs},
            "activation_checkpointing": {"mode": "full" if stage == 2 else "none"},
            "optimizer": {"type": "SGD", "params": {"lr": 0.5, "momentum": 0.9}},
        }
        for stage, knobs in cases
    ]
    ended = launch("train_all.py", json.dumps(configs), ranks=ranks)
    assert ended.exit_codes == (0,) * ranks, ended.errors
    return [decode(Seen, answer) for answer in json.loads(ended.outputs[0])]


@pytest.fixture(scope="module")
def seen(launch: Callable[..., Any]) -> list[Seen]:
    return [*train(launch, [*CASES, *PLAIN], 2), *train(launch, OF_FOUR_RANKS, 4)]


@pytest.mark.parametrize(("number", "case"), list(enumerate([*CASES, *PLAIN])))
def test_each_knob_is_found_on_the_live_model(
    seen: list[Seen], number: int, case: tuple[int, dict[str, Any]]
) -> None:
    stage, knobs = case
    assert seen[number].applied.zero_stage == stage
    found = dict(seen[number].applied.extras)
    assert {name: found.get(name) for name in {**DEFAULTS[stage], **knobs}} == {
        **DEFAULTS[stage],
        **knobs,
    }


@pytest.mark.parametrize("number", range(len([*CASES, *PLAIN, *OF_FOUR_RANKS])))
def test_no_knob_changes_the_losses(seen: list[Seen], number: int) -> None:
    assert seen[number].losses == pytest.approx(seen[len(CASES)].losses, abs=1e-4)


def test_weights_can_go_back_to_shards_over_fewer_ranks(seen: list[Seen]) -> None:
    assert dict(seen[-1].applied.extras)["reshard_after_forward"] == 2


def test_weights_can_be_sharded_over_some_ranks_and_copied_over_the_others(
    seen: list[Seen],
) -> None:
    assert dict(seen[-2].applied.extras)["shard_ranks"] == 2
    assert seen[-2].applied.data_parallel == 4


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("knob", ["blocks_per_unit", "forward_prefetch"])
def test_more_than_the_model_has_is_refused_by_name(tiny: Any, knob: str) -> None:
    config = tiny.config(zero_optimization={"stage": 3, knob: 4})
    with pytest.raises(ConfigError, match=f"{knob} is 4, but"):
        initialize(tiny.Tiny, config)
