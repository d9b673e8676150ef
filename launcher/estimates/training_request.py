"""What flags say of a training, and their limits. Not: what they mean (training_choice)."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoconf_launch.autotuner.cost import TrainerChoice
from autoconf_launch.core import ClusterSpec, Workload

MOST = 1 << 31
"""The largest size of a model that is believed."""
TIME_LIMIT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What is trained on what, and how it is answered.

    Attributes:
        workload: of a script, its model and what no flag gives are known once it has run.
        limit_bytes: memory of each GPU.
        cluster_text: the cluster as it was asked for; empty where it is one of ours.
        trainer: the code whose habits the workload's software has.
        time_limit_s: for a script to reach its first forward pass.
        given: flags of the command line, as ``--seq``; a script says the others.
    """

    workload: Workload
    cluster: ClusterSpec
    limit_bytes: int
    cluster_text: str = ""
    trainer: TrainerChoice = field(default_factory=TrainerChoice)
    time_limit_s: int = TIME_LIMIT_S
    json: bool = False
    given: frozenset[str] = frozenset()
