"""Questions whose names are resolved: a workload on a cluster, one layout or a ranking."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoconf_launch.autotuner.cost import TrainerChoice, Verdict, verdict
from autoconf_launch.core import ALL_LAYERS, GIB, ClusterSpec, Degrees, Layout, Workload

from ..asked import PlanFiles, PlanRanking, RealRuns, TrainingBudget

TIME_LIMIT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """A training on a cluster, and the form of the answer.

    Attributes:
        workload: for a script, complete only after its first forward pass.
        limit_bytes: memory of each GPU.
        cluster_text: the cluster as the user wrote it; empty for our own choice.
        trainer: the code whose habits the workload's software has.
        time_limit_s: time for a script to reach its first forward pass.
        given: flags of the command line, as ``--seq``; a script supplies the others.
    """

    workload: Workload
    cluster: ClusterSpec
    limit_bytes: int
    cluster_text: str = ""
    trainer: TrainerChoice = field(default_factory=TrainerChoice)
    time_limit_s: int = TIME_LIMIT_S
    json: bool = False
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """A training in a single layout.

    Attributes:
        layout: its data parallelism and accumulation follow from cluster and global batch.
        recompute_layers: of each stage, recomputed in full; -1 for all.
        is_sequence_open: no flag for sequence parallelism; trainers switch it on with tensor
            parallelism.
        is_zero_open: no flag for the ZeRO stage, so that it is the trainer's.
    """

    training: TrainingRequest
    layout: Layout
    recompute_layers: int = ALL_LAYERS
    is_sequence_open: bool = False
    is_zero_open: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanRequest(PlanFiles, RealRuns, PlanRanking):
    """A training, and how its layouts are ranked, shown and written.

    Attributes:
        degrees: limits of a preset that considers only some layouts.
        budget: for all its tokens.
        others: the same training on other clusters, for a comparison.
    """

    training: TrainingRequest
    budget: TrainingBudget = field(default_factory=TrainingBudget)
    degrees: Degrees | None = None
    others: tuple[TrainingRequest, ...] = ()

    @property
    def steps(self) -> int | None:
        """Optimizer steps of the whole training; None if its tokens are not known."""
        return self.budget.steps(self.training.workload.batch_tokens)


def limit_to_lift(needed_bytes: float, limit_bytes: float, cluster: ClusterSpec) -> str:
    """``--memory-limit`` and the GPU's own memory if only that flag keeps a need from fitting.

    Empty if it does not.
    """
    own_bytes, name = cluster.least_memory_bytes, cluster.devices[0].name
    is_cause = verdict(needed_bytes, limit_bytes) is Verdict.NO
    if not is_cause or verdict(needed_bytes, own_bytes) is not Verdict.YES:
        return ""
    limit, own = limit_bytes / GIB, own_bytes / GIB
    return f"--memory-limit {limit:.1f} GiB (each {name} has {own:.1f} GiB)"
