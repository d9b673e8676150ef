"""torchtitan's TOML file (0.1 to 0.2); from 0.3 on its keys are flags. Not: a model's section."""

from __future__ import annotations

from autoconf_launch.core import Offload, Precision, Recompute
from autoconf_launch.core import config_keys as keys

from ..dialects import ZERO_KEYS
from ..dialects import torchtitan as names
from ..spelling import toml_of
from .page import Exported, Optimum, Page, comments

_CHECKPOINT_CALL = "turn on the model's own checkpointing; DeepSpeed's section only shapes it"
_OFFLOAD = {
    Offload.OPTIMIZER: ("offload_optimizer",),
    Offload.PARAMETERS: ("offload_optimizer", "offload_param"),
}


def deepspeed(optimum: Optimum) -> Exported:
    """A JSON document; DeepSpeed reads it as hjson, which takes the comments, too."""
    page, layout = Page(optimum), optimum.layout
    page.say(keys.TRAIN_BATCH_SIZE, layout.global_batch)
    page.say(keys.MICRO_BATCH, layout.micro_batch, "micro_batch")
    page.say(keys.ACCUMULATION, layout.accumulation, "accumulation")
    page.say(keys.ZERO_STAGE, layout.zero_stage, "zero_stage")
    for section in _OFFLOAD.get(layout.offload, ()):
        page.say((*keys.ZERO, section, "device"), "cpu", "offload")
    for name, value in optimum.candidate.extras:
        if name.split(".")[0] in ZERO_KEYS:
            page.say((*keys.ZERO, *name.split(".")), value, name)
    if optimum.precision in (Precision.BF16, Precision.FP16):
        page.say((optimum.precision.value, "enabled"), value=True)
    if layout.recompute is not Recompute.NONE:
        page.cannot("recompute", _CHECKPOINT_CALL)
    left_out = page.left_out()
    text = comments(left_out, mark="//") + page.document.to_json() + "\n"
    return Exported(text=text, left_out=left_out)


def torchtitan(optimum: Optimum) -> Exported:
    """The tables ``training``, ``parallelism`` and ``activation_checkpoint``."""
    page, layout = Page(optimum), optimum.layout
    pipelined = layout.pipeline_parallel > 1
    local = layout.micro_batch * (layout.accumulation if pipelined else 1)
    page.say(_path(names._MICRO_BATCH), local, "micro_batch")
    page.say(_path(names.GLOBAL_BATCH_KEY), layout.global_batch, "accumulation")
    if layout.offload is Offload.PARAMETERS:
        page.say(_path(names.OFFLOAD), True, "offload")
    _say_stage(page)
    for knob, name in names._DEGREES.items():
        page.say(_path(name), getattr(layout, knob), knob)
    if pipelined:
        page.say(_path(names.PIPELINE_MICRO_BATCH), layout.micro_batch)
    if layout.virtual_pipeline > 1:
        page.say(_path(names.SCHEDULE), names.INTERLEAVED)
        page.cannot(
            "virtual_pipeline",
            "set parallelism.pipeline_parallel_layers_per_stage to layers / stages of all ranks",
        )
    page.done("sequence_parallel")  # always on with tensor parallelism up to 0.2
    page.say(_path(names._RECOMPUTE), layout.recompute.value, "recompute")
    left_out = page.left_out()
    return Exported(text=comments(left_out) + toml_of(page.document), left_out=left_out)


def _say_stage(page: Page) -> None:
    layout = page.optimum.layout
    sharded = layout.zero_stage > 1
    page.say(_path(names.REPLICATE), 1 if sharded else layout.data_parallel)
    page.say(_path(names.SHARD), layout.data_parallel if sharded else 1)
    if layout.zero_stage == 1:
        page.cannot(
            "zero_stage", "torchtitan cannot shard optimizer states alone; exported unsharded"
        )
    if layout.zero_stage == 2:
        page.say(_path(names._RESHARD), "never")
    page.done("zero_stage")


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))
