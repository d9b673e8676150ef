"""A training that was saved goes on under any layout, on real ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.engine import initialize

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")

MIXTRAL: dict[str, Any] = {"model": "mixtral"}
EXPERT: dict[str, Any] = {**MIXTRAL, "expert": 2}
OWN_EXPERTS: dict[str, Any] = {"model": "own_experts", "expert": 2}
TENSOR: dict[str, Any] = {"tensor": 2}
SEQUENCE: dict[str, Any] = {"tensor": 2, "sequence": True, "accumulation": 2}
STAGED: dict[str, Any] = {"pipeline": 2, "accumulation": 2}
INTERLEAVED: dict[str, Any] = {**STAGED, "virtual": 2}
ZERO = [{"stage": stage} for stage in range(4)]
CASES: list[list[dict[str, Any]]] = [
    [EXPERT, EXPERT, {**MIXTRAL, "stage": 3}, {**MIXTRAL, **TENSOR}],
    [{**MIXTRAL, "stage": 2}, {**EXPERT, "stage": 1}, MIXTRAL],
    [ZERO[0], TENSOR, ZERO[3], SEQUENCE],
    [SEQUENCE, ZERO[1], {"context": 2}, ZERO[2]],
    [ZERO[2], STAGED, {**TENSOR, "stage": 3}, INTERLEAVED],
    [INTERLEAVED, {**STAGED, "schedule": "gpipe", "split": (1, 3)}, {"context": 2, "stage": 3}],
]
"""Layouts of one training: each saves, and the next one goes on."""
ON_FOUR: list[list[dict[str, Any]]] = [
    [{**OWN_EXPERTS, "stage": 3}, OWN_EXPERTS, {**OWN_EXPERTS, "expert": 1, "stage": 2}],
    [{**EXPERT, "stage": 3}, {**EXPERT, "expert": 4}, {**EXPERT, **TENSOR}],
    [{**TENSOR, "stage": 3}, {"tensor": 4}, {"stage": 1}],
    [{"stage": 2}, {**TENSOR, "stage": 1}],
    [{**TENSOR, "context": 2, "stage": 2}, {"context": 4}, {"stage": 1}],
    [{**STAGED, "context": 2}, {"context": 2, "stage": 3}],
    [{**STAGED, "stage": 3}, {**INTERLEAVED, **TENSOR}, {"stage": 1}],
    [{"stage": 3, "shards": 2}, {**TENSOR, "samples": (5, 3)}, {"stage": 2, "shards": 2}],
]


@pytest.mark.parametrize(
    ("ranks", "cases"), [(2, CASES), pytest.param(4, ON_FOUR, marks=pytest.mark.slow)]
)
def test_the_losses_go_on_under_another_layout(
    ranks: int, cases: list[list[dict[str, Any]]], launch: Callable[..., Any], tmp_path: Path
) -> None:
    ended = launch("checkpoints.py", json.dumps(cases), str(tmp_path), ranks=ranks)
    assert set(ended.exit_codes) == {0}, ended.errors
    for layouts, (uninterrupted, interrupted) in zip(
        cases, json.loads(ended.outputs[0]), strict=True
    ):
        assert len(set(uninterrupted)) == len(uninterrupted)
        wanted = uninterrupted[: len(interrupted)]
        assert interrupted == pytest.approx(wanted, abs=1e-5), layouts


@pytest.mark.parametrize(
    ("ranks", "layouts"),
    [
        (2, [{**EXPERT, "stage": 3}, {"model": "gemma", **STAGED}]),
        (
            4,
            [
                {"model": "llama", **TENSOR, "stage": 3},
                {"model": "own_deep", **INTERLEAVED, **TENSOR},
            ],
        ),
    ],
)
def test_whole_weights_are_those_that_a_model_in_one_process_loads(
    ranks: int, layouts: list[dict[str, Any]], launch: Callable[..., Any], tmp_path: Path
) -> None:
    ended = launch("whole_weights.py", json.dumps(layouts), str(tmp_path), ranks=ranks)
    assert set(ended.exit_codes) == {0}, ended.errors
    losses = json.loads(ended.outputs[0].splitlines()[-1])  # libraries may say something before
    batch = models.batches(2)[1]
    for number, expected in enumerate(losses):
        family = layouts[number]["model"]
        if family.startswith("own"):
            model = models.build(family)
            path = tmp_path / str(number) / "pytorch_model.bin"
            model.load_state_dict(torch.load(path, weights_only=True))
        else:
            library = pytest.importorskip("transformers")
            model = library.AutoModelForCausalLM.from_pretrained(tmp_path / str(number))
        output = model(**batch)
        assert getattr(output, "loss", output).item() == pytest.approx(expected, abs=1e-5)


def test_a_checkpoint_before_any_step_is_one_of_the_weights(
    tiny: Any, alone: None, tmp_path: Path
) -> None:
    engine = initialize(tiny.Tiny, tiny.config())
    engine.save(tmp_path)
    batches = tiny.global_batches(4, 3)
    expected = [float(engine.step(batch)) for batch in batches]
    engine.load(tmp_path)
    assert [float(engine.step(batch)) for batch in batches] == expected


def test_a_folder_without_a_checkpoint_is_named(tiny: Any, alone: None, tmp_path: Path) -> None:
    engine = initialize(tiny.Tiny, tiny.config())
    with pytest.raises(ConfigError, match=r"holds no checkpoint of engine.save"):
        engine.load(tmp_path / "none")


def test_a_checkpoint_of_another_model_or_optimizer_is_refused(
    tiny: Any, alone: None, tmp_path: Path
) -> None:
    engine = initialize(tiny.Tiny, tiny.config())
    engine.step(tiny.global_batches(4, 1)[0])
    engine.save(tmp_path)
    deeper = initialize(lambda: tiny.Tiny(layers=4), tiny.config())
    with pytest.raises(ConfigError, match=r"another model: it has no model.blocks.3.norm.weight"):
        deeper.load(tmp_path)
    adam = {"type": "AdamW", "params": {"lr": 0.1}}
    other = initialize(tiny.Tiny, tiny.config(optimizer=adam))
    with pytest.raises(ConfigError, match=r"another optimizer: it has no optimizer"):
        other.load(tmp_path)


def test_the_scale_of_the_loss_goes_on(tiny: Any, alone: None, tmp_path: Path) -> None:
    config = tiny.config(fp16={"enabled": True}, gradient_clipping=1.0)
    engine = initialize(tiny.Tiny, config)
    stepper: Any = engine._stepper
    stepper.trained.scale.value = 8.0
    stepper.trained.scale.good_steps = 7
    engine.save(tmp_path)
    fresh = initialize(tiny.Tiny, config)
    fresh.load(tmp_path)
    trained: Any = fresh._stepper.trained
    assert (trained.scale.value, trained.scale.good_steps) == (8.0, 7)
