"""A NeMo 2.0 recipe's settings, as lines of Python that follow its making."""

from __future__ import annotations

from autoconf_launch.core import Recompute, dotted_name
from autoconf_launch.launcher.export import NEMO_DEGREES, Exported, Optimum, Page

_STRATEGY = ("trainer", "strategy")
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def nemo2(optimum: Optimum) -> Exported:
    """Assignments to ``recipe``."""
    page, layout = Page(optimum), optimum.layout
    page.say(("trainer", "num_nodes"), optimum.nodes)
    page.say(("trainer", "devices"), optimum.ranks_per_node)
    for knob, key in NEMO_DEGREES.items():
        page.say((*_STRATEGY, key), getattr(layout, knob), knob)
    virtual = layout.virtual_pipeline if layout.virtual_pipeline > 1 else None
    page.say((*_STRATEGY, "virtual_pipeline_model_parallel_size"), virtual, "virtual_pipeline")
    page.say((*_STRATEGY, "sequence_parallel"), layout.sequence_parallel, "sequence_parallel")
    distributed = layout.zero_stage > 0
    page.say((*_STRATEGY, "ddp", "use_distributed_optimizer"), distributed, "zero_stage")
    if layout.zero_stage in _SHARDING:
        strategy = _SHARDING[layout.zero_stage]
        page.say((*_STRATEGY, "ddp", "data_parallel_sharding_strategy"), strategy)
    page.say(("data", "micro_batch_size"), layout.micro_batch, "micro_batch")
    page.say(("data", "global_batch_size"), layout.global_batch, "accumulation")
    if layout.recompute is not Recompute.NONE:
        page.say(("model", "config", "recompute_granularity"), layout.recompute.value)
    if layout.recompute is Recompute.FULL:
        layers = page.layers_of_block()
        page.say(("model", "config", "recompute_method"), "block" if layers else "uniform")
        page.say(("model", "config", "recompute_num_layers"), layers or 1)
    page.mark_done("recompute")
    if optimum.sequence_length:
        page.say(("data", "seq_length"), optimum.sequence_length)
        page.say(("model", "config", "seq_length"), optimum.sequence_length)
    lines = [f"recipe.{dotted_name(path)} = {value!r}" for path, value in page.document.leaves()]
    return page.export("\n".join(lines) + "\n")
