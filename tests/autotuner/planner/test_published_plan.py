"""A published training among all layouts of its model and cluster.

DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2 for the layout; 14.8T tokens in 2.664 million GPU
hours (table 1) are 19.9 s for a step of 15,360 sequences of 4,096 tokens on 2,048 H800.
"""

import pytest

from autoconf_launch.autotuner.cost import trainer
from autoconf_launch.autotuner.planner import Limits, Planned, Question, Training, plan
from autoconf_launch.core import Precision, Recompute, Workload
from autoconf_launch.tuning_spaces import machine, named_model

PUBLISHED_S = 2.664e6 * 3600 / 2048 / (14.8e12 / (15360 * 4096))


@pytest.fixture(scope="module")
def rows() -> tuple[Planned, ...]:
    """The 20 fastest layouts."""
    software = trainer("auto").software_for(Precision.FP8)
    workload = Workload(
        model=named_model("deepseek-v3"),
        sequence_length=4096,
        global_batch=15360,
        precision=Precision.FP8,
        software=software,
    )
    on = machine("H800")
    limits = Limits(memory_bytes=79.0 * 2**30, headroom=0.1)
    training = Training(workload=workload, machine=on)
    return plan(Question(training=training, world=2048, limits=limits, most=20)).best


def test_the_published_layout_of_deepseek_v3_is_among_the_first_twenty(
    rows: tuple[Planned, ...],
) -> None:
    found = [
        one
        for one in rows
        if (one.layout.pipeline_parallel, one.layout.expert_parallel) == (16, 64)
        and (one.layout.tensor_parallel, one.layout.context_parallel) == (1, 1)
        and one.layout.zero_stage == 1
    ]
    assert found
    assert found[0].layout.recompute is Recompute.SELECTIVE
    assert found[0].step_s == pytest.approx(PUBLISHED_S, rel=0.2)


def test_the_best_layout_of_deepseek_v3_has_about_the_published_pace(
    rows: tuple[Planned, ...],
) -> None:
    assert pytest.approx(19.9, rel=0.01) == PUBLISHED_S
    assert rows[0].step_s == pytest.approx(PUBLISHED_S, rel=0.2)
