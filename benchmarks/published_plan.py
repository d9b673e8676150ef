"""Rank of DeepSeek-V3's published layout in ``plan``, and its step against the published pace.

    python benchmarks/published_plan.py

DeepSeek-AI 2024 (arXiv:2412.19437): 16 stages, experts on 64 ranks, ZeRO 1, no tensor parallelism
(section 3.2) on 2,048 H800; 14.8T tokens in 2.664 million GPU hours (table 1) by steps of 15,360
sequences of 4,096 tokens (section 4.2). It takes about three seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.autotuner.planner import Limits, Planned, Question, Training, plan
from autoconf_launch.core import Precision, Workload
from autoconf_launch.tuning_spaces import (
    machine,
    named_model,
    trainer,
    usable_bytes,
)

GPUS, BATCH, LENGTH = 2048, 15360, 4096
PUBLISHED_S = 2.664e6 * 3600 / GPUS / (14.8e12 / (BATCH * LENGTH))
FIRST_ROWS, WITHIN = 20, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """Rank of the published layout among all that fit, None beyond the first rows; seconds."""

    rank: int | None
    layout_s: float | None
    best_s: float

    @property
    def met(self) -> bool:
        """True if it is among the first rows, at about the published pace."""
        return self.layout_s is not None and abs(self.layout_s / PUBLISHED_S - 1.0) < WITHIN


def published_plan() -> PublishedPlan:
    """Rank all layouts, as ``plan --top 20`` if each family may have several rows."""
    workload = Workload(
        model=named_model("deepseek-v3"),
        sequence_length=LENGTH,
        global_batch=BATCH,
        precision=Precision.FP8,
    )
    workload = trainer("nemo").apply_to(workload)
    on = machine("H800")
    limits = Limits(memory_bytes=usable_bytes("H800"), headroom=0.1)
    training = Training(workload=workload, machine=on)
    found = plan(Question(training=training, world=GPUS, limits=limits, most=FIRST_ROWS))
    ranks = [rank for rank, one in enumerate(found.best, 1) if _is_published(one)]
    first = found.best[ranks[0] - 1].step_s if ranks else None
    return PublishedPlan(
        rank=ranks[0] if ranks else None, layout_s=first, best_s=found.best[0].step_s
    )


def _is_published(one: Planned) -> bool:
    own = one.layout
    degrees = (own.tensor_parallel, own.context_parallel, own.pipeline_parallel)
    return (*degrees, own.expert_parallel, own.zero_stage) == (1, 1, 16, 64, 1)


def main() -> None:
    """Print both."""
    found = published_plan()
    where = f"row {found.rank}" if found.rank else f"not in the first {FIRST_ROWS} rows"
    took = f", {found.layout_s:.1f} s a step" if found.layout_s else ""
    print(f"published layout: {where}{took}; best {found.best_s:.1f} s; {PUBLISHED_S:.1f} s paper")


if __name__ == "__main__":
    main()
