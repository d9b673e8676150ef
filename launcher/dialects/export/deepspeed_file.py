"""DeepSpeed's configuration file. Not: a results folder's own file, which has the user's keys."""

from __future__ import annotations

from autoconf_launch.core import Offload, Precision, Recompute
from autoconf_launch.core import config_keys as keys

from ..spellings.deepspeed import ZERO_KEYS
from .page import Exported, Optimum, Page, comments

_CHECKPOINT_CALL = "turn on the model's own checkpointing; DeepSpeed's section only shapes it"
_OFFLOAD = {
    Offload.OPTIMIZER: ("offload_optimizer",),
    Offload.PARAMETERS: ("offload_optimizer", "offload_param"),
}


def deepspeed(optimum: Optimum) -> Exported:
    """A JSON document; DeepSpeed reads it as hjson, which takes the comments, too."""
    page, layout = Page(optimum), optimum.layout
    page.say(keys.GLOBAL_BATCH, layout.global_batch)
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
