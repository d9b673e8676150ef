from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.planner import Limits, Question, Training
from autoconf_launch.core import Experts, Workload
from autoconf_launch.tuning_spaces import machine

from ..builders import architecture

SMALL = architecture()
SPARSE = replace(SMALL, name="sparse", experts=Experts(count=4, per_token=2, ffn=512))


def ask(world: int = 8, global_batch: int = 8, **changes: Any) -> Question:
    """A question about a small model on nodes of four A100."""
    model = SPARSE if changes.pop("sparse", False) else changes.pop("model", SMALL)
    sequence = changes.pop("sequence", 512)
    memory_bytes = changes.pop("memory_bytes", 80 * 2**30)
    limits = changes.pop("limits", Limits(memory_bytes=memory_bytes))
    training = Training(
        workload=Workload(model=model, sequence_length=sequence, global_batch=global_batch),
        machine=machine("A100-SXM-80GB", gpus_per_node=4),
    )
    return Question(training=training, world=world, limits=limits, **changes)
