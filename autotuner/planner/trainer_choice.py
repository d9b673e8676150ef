"""The trainer of a question that names none: one for all its layouts and formats of weights.

The choice never depends on the ZeRO stage or on how frozen weights are stored, so that sharding
and quantizing never change the rules.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoconf_launch.core import Architecture, Precision, Workload

from ..cost import TrainerChoice
from .bands import gpu_architecture

_NVIDIA_CHECKED = ("Hopper", "Blackwell")
"""Architectures on which NVIDIA publishes the runs that predictions are checked against
(Megatron-Bridge, docs/performance-summary.md)."""
_DESKTOPS = ("RTX-", "GTX-", "TITAN-", "Quadro-", "GB10-")
"""GPUs of desktops and workstations, on which no published table has a run of Megatron."""


def choose_trainer(workload: Workload, gpus: Iterable[str]) -> TrainerChoice:
    """The code that usually trains so on these GPUs, preferably one that was checked on them.

    Args:
        workload: the model, the precision, and what is frozen.
        gpus: names of all GPUs in question.
    """
    names = sorted(set(gpus))
    architectures = list(dict.fromkeys(map(gpu_architecture, names)))
    desktops = [name for name in names if name.startswith(_DESKTOPS)]
    if workload.lora_rank is not None:
        return TrainerChoice(name="huggingface", why="default for LoRA")
    if workload.frozen:
        return TrainerChoice(name="huggingface", why="default for frozen parts")
    if any(name.startswith("cpu") for name in names):
        return TrainerChoice(name="native", why="default on CPUs")
    if workload.precision is Precision.FP32:
        return TrainerChoice(name="huggingface", why="default for fp32")
    if workload.precision.is_quantized:
        return TrainerChoice(name="nemo", why=f"default for {workload.precision.value}")
    if desktops:
        return TrainerChoice(name="huggingface", why=f"default on {desktops[0]}")
    places = " and ".join(architectures)
    if set(architectures) <= set(_NVIDIA_CHECKED) and _is_megatrons(workload):
        return TrainerChoice(name="nemo", why=f"default, checked on {places}")
    return TrainerChoice(name="megatron", why=f"default on {places}")


def _is_megatrons(workload: Workload) -> bool:
    """Whether the model is a decoder of the kind that NVIDIA's recipes train."""
    model = workload.model
    if not isinstance(model, Architecture):
        return False
    return model.causal and not model.encoder_layers and model.state is None
