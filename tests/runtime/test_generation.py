"""Several ranks, each with its part of the model, write the text of one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from autoconf_launch.core import FailureKind, Mode

Case: TypeAlias = tuple[str, dict[str, int], int]
Answers: TypeAlias = dict[str, Any]

TENSOR, PIPELINE = {"tensor_parallel": 2}, {"pipeline_parallel": 2}
FAMILIES = ("llama", "gpt3", "mixtral", "t5")
LENGTH = 11


def write_all(launch: Callable[..., Any], cases: list[Case], ranks: int) -> list[Answers]:
    ended = launch("generate_all.py", json.dumps(cases), ranks=ranks)
    assert ended.exit_codes == (0,) * ranks, ended.errors
    found: list[Answers] = json.loads(ended.outputs[0].splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def alone(launch: Callable[..., Any]) -> dict[str, Answers]:
    cases: list[Case] = [(family, {}, LENGTH) for family in FAMILIES]
    return dict(zip(FAMILIES, write_all(launch, cases, 1), strict=True))


@pytest.fixture(scope="module")
def on_two(launch: Callable[..., Any]) -> dict[tuple[str, str], Answers]:
    kinds = {"tensor": TENSOR, "pipeline": PIPELINE}
    names = [(family, kind) for family in FAMILIES for kind in kinds]
    cases: list[Case] = [(family, kinds[kind], LENGTH) for family, kind in names]
    return dict(zip(names, write_all(launch, cases, 2), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_two_tensor_ranks_write_what_one_process_writes(
    alone: dict[str, Answers], on_two: dict[tuple[str, str], Answers], family: str
) -> None:
    assert on_two[family, "tensor"]["tokens"] == alone[family]["tokens"]
    assert on_two[family, "tensor"]["cache"] * 2 == alone[family]["cache"]
    assert on_two[family, "tensor"]["weights"] < 0.6 * alone[family]["weights"]


@pytest.mark.parametrize("family", ["llama", "gpt3", "mixtral"])
def test_two_stages_write_what_one_process_writes(
    alone: dict[str, Answers], on_two: dict[tuple[str, str], Answers], family: str
) -> None:
    assert on_two[family, "pipeline"]["tokens"] == alone[family]["tokens"]
    assert on_two[family, "pipeline"]["cache"] * 2 == alone[family]["cache"]


def test_an_encoder_decoder_has_no_stages(on_two: dict[tuple[str, str], Answers]) -> None:
    assert "an encoder-decoder has two" in on_two["t5", "pipeline"]["refused"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_generation_begins_anew(alone: dict[str, Answers], family: str) -> None:
    assert alone[family]["again"] == alone[family]["tokens"]
    assert {len(row) for row in alone[family]["tokens"]} == {9}
    assert len({token for row in alone[family]["tokens"] for token in row}) > 4


def test_lengths_beyond_the_positions_and_odd_degrees_are_refused(
    launch: Callable[..., Any],
) -> None:
    cases: list[Case] = [("gpt3", {}, 120), ("bert", {}, LENGTH)]
    positions, bert = write_all(launch, cases, 1)
    assert "input_len + output_len is 129, but the model has 128 positions" in positions["refused"]
    assert "Models of family bert write no text" in bert["refused"]


@pytest.mark.slow
def test_tensor_and_pipeline_ranks_together_write_what_one_process_writes(
    launch: Callable[..., Any], alone: dict[str, Answers]
) -> None:
    families = ("llama", "gpt3", "mixtral")
    cases: list[Case] = [(family, TENSOR | PIPELINE, LENGTH) for family in families]
    for family, found in zip(families, write_all(launch, cases, 4), strict=True):
        assert found["tokens"] == alone[family]["tokens"], family


@pytest.mark.slow
def test_tensor_ranks_that_do_not_divide_the_heads_are_refused(
    launch: Callable[..., Any],
) -> None:
    three = {"tensor_parallel": 3}
    for found in write_all(launch, [("gpt3", three, LENGTH), ("llama", three, LENGTH)], 3):
        assert "3" in found["refused"], found


def test_a_rank_reports_generations_and_their_phases(
    launch: Callable[..., Any], tmp_path: Any
) -> None:
    ended = launch("measure_generation.py", mode=Mode.MEASURE, start_step=2, end_step=3)
    assert ended.exit_codes == (0,), ended.errors
    result = ended.result()
    assert [step.samples for step in result.steps] == [3, 3, 3]
    phases = dict(result.phases)
    assert set(phases) == {"prefill", "decode"}
    mean_s = sum(step.wall_s for step in result.steps[1:]) / 2
    assert sum(phases.values()) == pytest.approx(mean_s)
    assert result.applied is not None
    assert result.end_step == 3
    assert dict(result.applied.extras) == {"input_len": LENGTH, "output_len": 9}
    assert result.memory is not None
    assert result.memory.limit_bytes > 0
    assert result.memory.reserved_bytes is not None


def test_a_launch_of_other_ranks_than_the_point_has_is_a_bad_configuration(
    launch: Callable[..., Any],
) -> None:
    ended = launch("measure_generation.py", "2", mode=Mode.MEASURE, start_step=2, end_step=3)
    assert ended.exit_codes == (1,)
    assert ended.failure_kind() is FailureKind.BAD_CONFIG
