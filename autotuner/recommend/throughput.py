"""What a cluster achieves on a model: the planner's fastest layout that surely fits.

Of those that a search would run (search_rules). Not: all layouts (layouts/search), nor days and
money (outlook).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoconf_launch.core import Layout, Offload

from ..layouts.choices import Choices, divisors
from ..layouts.pricing import Training
from ..layouts.search import Limits, Planned, Question, plan
from .model_size import FLOPS_PER_PARAMETER_AND_TOKEN
from .search_rules import SearchLimits, search_rules

_CHOICES = Choices(zero=(0, 1), offload=(Offload.NONE,))
"""ZeRO 1 is the distributed optimizer of NeMo's configurations; there is no more, nor offload."""
_BATCH_BAND = 0.1
_MOST_BATCHES = 3
_WORTH = 1.05
"""Speed that must be gained for another batch than a table's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is trained on how many equal nodes.

    Attributes:
        memory_bytes: what one GPU can hold.
        global_batch: samples of a step; where it was not given by the user (``is_batch_given``),
            one within a tenth of it may be taken.
        active_parameters: for the formula's way to count operations.
    """

    training: Training
    nodes: int
    memory_bytes: float
    global_batch: int
    is_batch_given: bool
    active_parameters: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.training.machine.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """The fastest layout found.

    Attributes:
        recompute_layers: of each stage, recomputed in full; -1 for all.
        tflops_per_gpu: as NVIDIA's formula counts: 8 operations for each active parameter and
            token.
        model_tflops_per_gpu: operations of the model alone, attention included.
        is_batch_changed: the layout's global batch is not the one asked for.
    """

    layout: Layout
    recompute_layers: int
    step_s: float
    tokens_per_s: float
    peak_bytes: float
    tflops_per_gpu: float
    model_tflops_per_gpu: float
    is_batch_changed: bool


def achieved(task: Task) -> Achieved | None:
    """The layout that reads most tokens in a second; None where none surely fits."""
    exact = _planned(task, task.global_batch)
    if task.is_batch_given and exact:
        return _achieved(task, exact)
    near = next((one for batch in _near(task) if (one := _planned(task, batch))), None)
    best = exact or near
    if exact and near and _samples_per_s(near) >= _WORTH * _samples_per_s(exact):
        best = near
    return _achieved(task, best) if best else None


def _near(task: Task) -> Iterator[int]:
    """Batches within a tenth that many data-parallel ranks divide, the widest first."""
    wanted = task.global_batch
    near = {
        batch: None
        for data in reversed(divisors(task.gpus))
        if (batch := round(wanted / data) * data) != wanted
        and abs(batch / wanted - 1) <= _BATCH_BAND
    }
    yield from list(near)[:_MOST_BATCHES]


def _planned(task: Task, batch: int) -> Planned | None:
    question = Question(
        training=task.training,
        world=task.gpus,
        global_batch=batch,
        limits=Limits(memory_bytes=task.memory_bytes),
        choices=_CHOICES,
        most=1,
        rules=search_rules(SearchLimits(gpus_per_node=task.training.machine.gpus_per_node)),
    )
    return plan(question).surely


def _samples_per_s(one: Planned) -> float:
    return one.layout.global_batch / one.step_s


def _achieved(task: Task, one: Planned) -> Achieved:
    training = task.training
    tokens_per_s = _samples_per_s(one) * training.setup.sequence
    busy = dict(one.parts)["ideal"] / one.step_s
    per_token = FLOPS_PER_PARAMETER_AND_TOKEN * task.active_parameters
    return Achieved(
        layout=one.layout,
        recompute_layers=one.recompute_layers,
        step_s=one.step_s,
        tokens_per_s=tokens_per_s,
        peak_bytes=one.peak_bytes,
        tflops_per_gpu=per_token * tokens_per_s / task.gpus / 1e12,
        model_tflops_per_gpu=busy * training.machine.accelerator.half_flops_per_s / 1e12,
        is_batch_changed=one.layout.global_batch != task.global_batch,
    )
