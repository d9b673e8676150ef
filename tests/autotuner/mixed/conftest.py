from __future__ import annotations

from autoconf_launch.autotuner.mixed import MachineKind
from autoconf_launch.autotuner.mixed.times import StageRows
from autoconf_launch.core import Workload
from autoconf_launch.tuning_spaces import machine

from ..builders import architecture

rows_at_first = StageRows.at_first
SMALL = architecture(
    layers=12,
    hidden=1024,
    heads=16,
    vocabulary=50_257,
    positions=1024,
    gated=False,
    biases=True,
    causal=True,
    tied_embeddings=True,
)


WORKLOAD = Workload(model=SMALL, sequence_length=1024, global_batch=16)


def kind(gpu: str, count: int = 1, gpus: int = 4, usd: float | None = 1.0) -> MachineKind:
    nodes = machine(gpu, gpus_per_node=gpus)
    return MachineKind(
        name=f"{gpus}x{gpu}",
        machine=nodes,
        count=count,
        memory_bytes=0.95 * nodes.accelerator.memory_bytes,
        usd_per_hour=usd,
    )
