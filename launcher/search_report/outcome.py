"""What a search for a training configuration found, as values. Not: how it is searched or told."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.autotuner.recommend.model_flops import SampleShape
from autoconf_launch.autotuner.recommend.nemo_candidates import NemoCandidate
from autoconf_launch.core import Failure, RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRun:
    """One candidate that was started, with a measurement or a failure.

    Attributes:
        name: of its folder and file: one for each candidate of a search.
        point: its degrees, micro-batch and checkpointed layers, in NVIDIA's terms.
        config: of a whole training with its layout, which the best one's file repeats.
        knobs: what else it sets beside ``point``, such as ``("zero_stage", 1)``.
        steps: optimizer steps that ``step_s`` is of; warm-up is not among them.
        extrapolated_from: micro-batches that a rank made where there was no time for a step of
            ``whole_micro_batches``; ``steps`` then counts those that an estimate was made of.
        step_s: mean seconds of a step; None where nothing was measured.
        step_spread_s: standard deviation of the steps; None below two of them.
        peak_bytes: of the fullest rank.
        loss: of the last step.
        failure: why nothing was measured; None where ``step_s`` is there.
    """

    name: str
    point: NemoCandidate
    global_batch: int
    config: RawConfig
    knobs: tuple[tuple[str, int | float | str | bool], ...] = ()
    steps: int = 0
    extrapolated_from: int | None = None
    whole_micro_batches: int | None = None
    step_s: float | None = None
    step_spread_s: float | None = None
    peak_bytes: int | None = None
    loss: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """All that a search started, in the order in which it did.

    Attributes:
        nodes, gpus_per_node: what each run had.
        tokens_b: of the whole training, in billions, for days and money.
        base: the configuration that the candidates differ from.
        usd_per_gpu_hour: None where no price is known; ``price`` says whose it is.
        notes: sentences for the user, such as why candidates were not started.
    """

    family: Family
    size_b: float
    nodes: int
    gpus_per_node: int
    tokens_b: float
    shape: SampleShape
    base: RawConfig
    runs: tuple[SearchRun, ...] = ()
    usd_per_gpu_hour: float | None = None
    price: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Of one run."""
        return self.nodes * self.gpus_per_node
