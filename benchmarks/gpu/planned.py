"""Predictions of ``plan`` for the configurations of ``train.py`` on one GPU.

``python benchmarks/gpu/planned.py`` prints the name of this machine's GPU in our tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from autoconf_launch import ConfigError, plan
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import ALL_LAYERS, HardwareError, Offload, Recompute
from autoconf_launch.launcher.hosts import local_cluster
from autoconf_launch.launcher.machine import is_cpu
from autoconf_launch.tuning_spaces import known_accelerator

TOKENS = {
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"), 1024),
    **dict.fromkeys(("llama3.2-1b", "llama3.2-3b"), 2048),
}
"""Sequence length of each model of ``train.py`` that ``plan`` knows."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One setting of what ``train.py`` lets a user choose.

    Attributes:
        checkpointing: ``none`` or ``full``, which recomputes every block.
        precision: ``bf16`` (autocast), ``fp32``, or ``tf32``: fp32 with TF32 products.
    """

    micro_batch: int
    checkpointing: str = "none"
    precision: str = "bf16"
    compiled: bool = False


@dataclass(frozen=True, kw_only=True)
class Question:
    """The workload and the GPU that every configuration is predicted for.

    Attributes:
        gpu: name in our tables; None if the GPU is unknown or missing.
    """

    model: str
    gpu: str | None
    global_batch: int


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Memory and step time of one configuration; None if there is no prediction.

    Attributes:
        fits: False if ``plan`` rejects the configuration for its memory.
    """

    fits: bool | None = None
    peak_bytes: float | None = None
    step_s: float | None = None


def predict(question: Question, configuration: Configuration) -> Prediction:
    """The prediction for one configuration; ``plan`` is asked once for each precision."""
    layouts = _layouts(question, configuration.precision, configuration.compiled)
    if layouts is None:
        return Prediction()
    for planned in layouts:
        if is_same(planned, configuration):
            return Prediction(fits=True, peak_bytes=planned.peak_bytes, step_s=planned.step_s)
    return Prediction(fits=False)


def is_same(planned: Planned, configuration: Configuration) -> bool:
    """Whether a row of ``plan`` is the layout that ``train.py`` runs.

    Rows of one micro-batch differ in how many layers they recompute; ``train.py`` recomputes all
    layers or none.
    """
    layout = planned.layout
    if layout.zero_stage or layout.offload is not Offload.NONE:
        return False
    if layout.recompute is Recompute.FULL and planned.recompute_layers != ALL_LAYERS:
        return False
    wanted = (configuration.micro_batch, configuration.checkpointing)
    return (layout.micro_batch, layout.recompute.value) == wanted


@cache
def _layouts(question: Question, precision: str, compiled: bool) -> tuple[Planned, ...] | None:
    """All layouts that fit; None if the model or the GPU is not in our tables."""
    if question.gpu is None or question.model not in TOKENS:
        return None
    try:
        answer = plan(
            model=question.model,
            cluster=f"1x{question.gpu}",
            seq=TOKENS[question.model],
            global_batch=question.global_batch,
            precision=precision,
            compile=compiled,
            trainer="native",
            top=None,
        )
    except ConfigError as error:
        print(f"plan has no answer for {question} in {precision}: {error}", flush=True)
        return None
    return answer.plan.best


def gpu_of_this_machine() -> str | None:
    """The name of this machine's GPU in our tables; None without a GPU or if it is unknown."""
    try:
        cluster = local_cluster(1)
    except HardwareError:
        return None
    return None if is_cpu(cluster) else known_accelerator(cluster.devices[0].name)


if __name__ == "__main__":
    print(gpu_of_this_machine() or "unknown")
