"""Every layout on two ranks against a plain loop in one process, on the same global batches."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

from autoconf_launch.core import AppliedStrategy, decode

RANKS = 2
GLOBAL_BATCH = 12
STEPS = 5
CLIP = 0.3
SGD = {"type": "SGD", "params": {"lr": 0.5, "momentum": 0.9}}
ADAMW = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}


@dataclass(frozen=True, kw_only=True)
class Case:
    stage: int = 0
    micro: int = 3
    recompute: str = "none"
    precision: str = "fp32"
    optimizer: str = "SGD"
    clip: float = 0.0

    @property
    def config(self) -> dict[str, Any]:
        return {
            "train_micro_batch_size_per_gpu": self.micro,
            "gradient_accumulation_steps": GLOBAL_BATCH // RANKS // self.micro,
            "zero_optimization": {"stage": self.stage},
            "activation_checkpointing": {"mode": self.recompute},
            "gradient_clipping": self.clip,
            "optimizer": SGD if self.optimizer == "SGD" else ADAMW,
            self.precision: {"enabled": self.precision != "fp32"},
        }


STAGES = range(4)
EXACT = [
    *(Case(stage=stage, micro=1) for stage in STAGES),
    *(Case(stage=stage, micro=6, recompute="full", clip=CLIP) for stage in STAGES),
    *(Case(stage=stage, micro=2, recompute="selective") for stage in STAGES),
    *(Case(stage=stage, micro=3, optimizer="AdamW", clip=CLIP) for stage in STAGES),
]
LOOSE = [
    *(Case(stage=stage, precision="bf16", clip=CLIP) for stage in STAGES),
    Case(stage=1, precision="fp16", recompute="selective"),
    Case(stage=3, precision="fp16", recompute="full", clip=CLIP),
]


@dataclass(frozen=True, kw_only=True)
class Seen:
    losses: tuple[float, ...]
    applied: AppliedStrategy


@pytest.fixture(scope="module")
def seen(launch: Callable[..., Any]) -> dict[Case, Seen]:
    cases = [*EXACT, *LOOSE]
    ended = launch("train_all.py", json.dumps([case.config for case in cases]), ranks=RANKS)
    assert ended.exit_codes == (0, 0), ended.errors
    answers = [decode(Seen, answer) for answer in json.loads(ended.outputs[0])]
    return dict(zip(cases, answers, strict=True))


def plain_losses(case: Case, tiny: Any) -> list[float]:
    """The whole global batch at once, only by torch; the rest of a case is our own doing."""
    return losses_of_one_process(tiny, case.optimizer, case.clip)


@cache
def losses_of_one_process(tiny: Any, optimizer_name: str, clip: float) -> list[float]:
    model = tiny.Tiny()
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        if optimizer_name == "SGD"
        else torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    )
    losses = []
    for text, target in tiny.global_batches(GLOBAL_BATCH, STEPS):
        loss = model(text, target)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_losses_equal_one_process(seen: dict[Case, Seen], case: Case, tiny: Any) -> None:
    assert seen[case].losses == pytest.approx(plain_losses(case, tiny), abs=1e-4)


@pytest.mark.parametrize("case", LOOSE, ids=str)
def test_losses_in_half_precision_are_near_those_of_one_process(
    seen: dict[Case, Seen], case: Case, tiny: Any
) -> None:
    assert seen[case].losses == pytest.approx(plain_losses(case, tiny), abs=0.03)


def test_clipping_matters_in_these_tests(tiny: Any) -> None:
    assert plain_losses(Case(clip=CLIP), tiny) != pytest.approx(
        plain_losses(Case(), tiny), abs=1e-2
    )


@pytest.mark.parametrize("case", [*EXACT, *LOOSE], ids=str)
def test_the_strategy_seen_in_the_live_model_is_the_one_asked_for(
    seen: dict[Case, Seen], case: Case
) -> None:
    applied = seen[case].applied
    shown = (
        applied.zero_stage,
        applied.data_parallel,
        applied.micro_batch,
        applied.accumulation,
        applied.precision.value,
        applied.recompute and applied.recompute.value,
    )
    accumulation = GLOBAL_BATCH // RANKS // case.micro
    assert shown == (case.stage, RANKS, case.micro, accumulation, case.precision, case.recompute)
