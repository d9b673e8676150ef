"""A traced script as a value: two layers of 1000 weights, 4 samples, Adam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autoconf_launch.core import (
    BlockSpec,
    FirstForward,
    Grade,
    ModelSpec,
    OperationCost,
    TracedPeak,
)
from autoconf_launch.launcher.estimates import parse_plan
from autoconf_launch.launcher.first_forward import TracedScript
from autoconf_launch.launcher.first_forward.answers import PiecesQuestion

GB = 2**30
MODEL = ModelSpec(
    grade=Grade.TRACED,
    blocks=(
        BlockSpec(
            name="layers",
            count=2,
            parameters=GB // 8,
            flops=1e12,
            activation_bytes=GB,
            input_bytes=GB // 16,
        ),
    ),
)
WEIGHTS = GB // 4


def find(**changed: Any) -> FirstForward:
    """4 GB of weights and gradients in all, and 2 GB for each of 4 samples."""
    plain = FirstForward(
        model=MODEL,
        micro_batch=4,
        fake=True,
        peaks=(
            TracedPeak(phase="forward", micro_batch=4, peak_bytes=9 * GB),
            TracedPeak(phase="backward", micro_batch=4, peak_bytes=10 * GB),
            TracedPeak(phase="forward", micro_batch=8, peak_bytes=17 * GB),
            TracedPeak(phase="backward", micro_batch=8, peak_bytes=18 * GB),
        ),
        operations=(OperationCost(flops=2.4e13, moved_bytes=GB, count=1),),
        optimizer="Adam",
        state_bytes=8 * WEIGHTS,
    )
    return replace(plain, **changed)


def script(**changed: Any) -> TracedScript:
    return TracedScript(name="train.py", found=find(**changed), architecture=None, why_pieces="x")


def pieces_of(cluster: str = "8xA100-SXM-80GB", **changed: Any) -> PiecesQuestion:
    words = ["--cluster", cluster, "--precision", "fp32"]
    training = parse_plan(words, of_script=True).training
    return PiecesQuestion(script=script(**changed), training=training)
