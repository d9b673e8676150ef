"""Scripts that are stopped at their first forward pass, and what is said of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from autoconf_launch.core import (
    FIRST_FORWARD_FILE,
    FirstForward,
    Mode,
    Precision,
    Recompute,
    decode,
)

from ..forked import free_port
from .conftest import Ended, Probed

SCRIPT = "first_pass.py"
WEIGHTS = 4 * (64 * 64 + 64) + 64 * 8 + 8
STATE_TOLERANCE = 0.01
"""AdamW keeps a count of steps for each tensor beside its two moments."""


@pytest.fixture
def stopped(probed: Probed) -> Any:
    """``stopped(kind)``: the script's process, which has ended."""
    return lambda kind, *more: probed(SCRIPT, kind, *more, mode=Mode.FIRST_FORWARD)


def find(ended: Ended) -> FirstForward:
    path = ended.folder / FIRST_FORWARD_FILE
    assert path.exists(), f"{ended.errors[-2000:]} {ended.signs()}"
    return decode(FirstForward, json.loads(path.read_text()))


def peaks(one: FirstForward) -> dict[tuple[str, int], int]:
    return {(peak.phase, peak.micro_batch): peak.peak_bytes for peak in one.peaks}


def flops(one: FirstForward) -> float:
    return sum(cost.flops * cost.count for cost in one.operations)


def test_weights_batch_and_optimizer_are_the_script_s(stopped: Any) -> None:
    one = find(stopped("plain"))
    assert (one.model.parameters, one.micro_batch, one.optimizer) == (WEIGHTS, 16, "AdamW")
    assert (one.fake, one.backward, one.precision) == (True, True, Precision.FP32)
    assert [block.count for block in one.model.blocks] == [4, 1]


def test_a_pass_costs_three_times_its_products(stopped: Any) -> None:
    forward = 2 * 16 * (4 * 64 * 64 + 64 * 8)
    unneeded = 2 * 16 * 64 * 64  # no gradient of the batch is asked for
    assert flops(find(stopped("plain"))) == 3 * forward - unneeded


def test_fakes_and_real_tensors_say_the_same(stopped: Any) -> None:
    fake, real = find(stopped("plain")), find(stopped("looks"))
    assert not real.fake
    assert "Not on fake tensors: DataDependentOutput" in real.notes[0]
    assert real.model.parameters == fake.model.parameters
    for phase in ("forward", "backward"):
        assert peaks(real)[phase, 16] == pytest.approx(peaks(fake)[phase, 16], rel=0.02)


def test_peaks_are_those_of_a_real_step_and_grow_with_the_batch(stopped: Any) -> None:
    sizes = peaks(find(stopped("plain")))
    once, twice = (sizes["forward", size] - 4 * WEIGHTS for size in (16, 32))
    batch = 16 * 64 * 4
    hidden = 4 * 16 * 64 * 4  # what relu gives is what it keeps
    assert hidden < once < 2 * hidden + 2 * batch + 16 * 8 * 4 * 4
    assert twice == pytest.approx(2 * once, rel=0.02)


@pytest.mark.parametrize(("kind", "values"), [("plain", 2), ("with_momentum", 1)])
def test_the_optimizer_s_state_is_counted(stopped: Any, kind: str, values: int) -> None:
    state = find(stopped(kind)).state_bytes
    assert state == pytest.approx(4 * values * WEIGHTS, rel=STATE_TOLERANCE)


def test_an_lstm_s_products_and_what_it_keeps_are_counted(stopped: Any) -> None:
    one = find(stopped("recurrent"))
    tokens, weights = 16 * 128, 2 * 4 * 64 * 64
    assert (one.fake, flops(one)) == (True, 3 * 2 * tokens * weights)
    sizes = peaks(one)
    assert sizes["forward", 32] - sizes["forward", 16] > 7 * 4 * tokens * 64


def test_a_micro_batch_of_graphs_is_what_the_loader_drew(stopped: Any) -> None:
    one = find(stopped("graphs"))
    sizes, hidden = peaks(one), 4 * (20 + 21 + 22 + 23) * 64 * 4
    assert one.micro_batch == 4
    assert sizes["forward", 8] - sizes["forward", 4] >= hidden


def test_no_step_is_made_and_nothing_is_left(stopped: Any) -> None:
    ended = stopped("swallows_everything")
    one = find(ended)
    assert (ended.exit_codes, ended.output) == ((0,), "")
    assert one.left_behind == ("before.txt",)


def test_a_loss_that_is_only_read_stays_fake(stopped: Any) -> None:
    assert find(stopped("reads_its_loss")).fake


@pytest.mark.parametrize("kind", ["evaluates_first", "tries_it_first"])
def test_a_pass_that_trains_nothing_is_not_the_first(stopped: Any, kind: str) -> None:
    one = find(stopped(kind))
    assert (one.micro_batch, flops(one)) == (16, flops(find(stopped("plain"))))


@pytest.mark.parametrize("when", ["before", "after", "not frozen"])
def test_a_teacher_costs_its_forward_pass_wherever_it_is_called(stopped: Any, when: str) -> None:
    alone, one = find(stopped("with_teacher", "never")), find(stopped("with_teacher", when))
    forward = 2 * 16 * (4 * 64 * 64 + 64 * 8)
    assert flops(one) == flops(alone) + forward
    assert sum(cost.flops * cost.count for cost in one.frozen_operations) == forward
    wanted = 16 * 8 * 4
    assert peaks(one)["forward", 16] >= peaks(alone)["forward", 16] + wanted


@pytest.mark.parametrize("when", ["for all data", "for another batch"])
def test_a_frozen_model_that_prepares_data_is_not_part_of_a_step(stopped: Any, when: str) -> None:
    alone, one = find(stopped("with_teacher", "never")), find(stopped("with_teacher", when))
    assert flops(one) == flops(alone)


def test_modules_that_are_called_by_themselves_count_together(stopped: Any) -> None:
    one = find(stopped("in_two_parts"))
    assert one.model.parameters == (64 * 64 + 64) + (64 * 8 + 8)
    assert one.model.notes == ("The script calls 2 modules by themselves.",)


def test_recomputation_by_the_script_is_seen(stopped: Any) -> None:
    assert find(stopped("recomputes")).recompute is Recompute.FULL


def test_the_model_s_own_configuration_comes_along(stopped: Any) -> None:
    config = find(stopped("configured")).config
    assert config is not None
    assert json.loads(config) == {"model_type": "llama", "hidden_size": 64}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_script_that_asks_for_cuda_by_name_needs_none(stopped: Any) -> None:
    one = find(stopped("on_a_gpu", str(free_port())))
    assert (one.model.parameters, one.wrapper) == (WEIGHTS, "DistributedDataParallel")
    assert one.precision is Precision.BF16


NEWER = ["fp32_precision", "everywhere"] if hasattr(torch.backends, "fp32_precision") else []


@pytest.mark.parametrize("how", ["matmul_precision", "allow_tf32", *NEWER])
def test_tf32_is_seen_however_it_is_switched_on(stopped: Any, how: str) -> None:
    assert find(stopped("asks_for_tf32", how)).precision is Precision.TF32


def test_formats_of_a_gpu_are_no_error_of_the_trainer_without_one(stopped: Any) -> None:
    pytest.importorskip("transformers")
    assert find(stopped("asks_for_tf32", "tf32", "bf16")).precision is Precision.TF32


def test_a_script_without_a_pass_leaves_nothing(stopped: Any) -> None:
    ended = stopped("never")
    assert not (ended.folder / FIRST_FORWARD_FILE).exists()
    assert set(ended.signs()) == {"armed"}


def test_memory_that_runs_out_is_a_sign_of_its_own(stopped: Any) -> None:
    assert "out_of_memory" in stopped("runs_out_of_memory").signs()


TRAINER = """
import torch
from transformers import training_args

assert training_args.check()
model = torch.nn.Linear(4, 4)
model(torch.ones(2, 4)).sum().backward()
"""
CHECKS = """
def is_torch_bf16_gpu_available():
    return False


def check():
    return is_torch_bf16_gpu_available()
"""


def test_a_trainer_takes_bf16_though_no_gpu_is_seen(probed: Probed, tmp_path: Path) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "training_args.py").write_text(CHECKS)
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    assert find(probed(script, mode=Mode.FIRST_FORWARD)).model.parameters == 20
