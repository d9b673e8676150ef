"""Flags of a training to its workload. Not: its layout."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.cost import TRAINERS, Machine, trainer
from autoconf_launch.autotuner.planner import Training
from autoconf_launch.autotuner.sizing import runs_flash
from autoconf_launch.core import (
    Architecture,
    ClusterSpec,
    ConfigError,
    Precision,
    Software,
    Workload,
)
from autoconf_launch.tuning_spaces import machine

from .training_flags import TrainingRequest


def choose_training(
    flags: TrainingRequest, architecture: Architecture, cluster: ClusterSpec
) -> Workload:
    """The workload with the trainer's habits, where no flag says otherwise.

    Raises:
        ConfigError: a GPU does not compute in this precision.
    """
    _check_precision(flags.precision, cluster)
    workload = trainer(flags.trainer).applied(
        Workload(
            architecture=architecture,
            sequence_length=flags.sequence,
            precision=flags.precision,
            optimizer=flags.optimizer,
            lora_rank=flags.lora_rank,
            frozen=flags.frozen,
            software=Software(compiled=flags.compiled),
        )
    )
    if flags.flash_attention is None:
        return workload
    software = replace(workload.software, flash_attention=flags.flash_attention)
    return replace(workload, software=software)


def _check_precision(precision: Precision, cluster: ClusterSpec) -> None:
    for gpu in sorted({device.name for device in cluster.devices}):
        accelerator = machine(gpu).accelerator
        lacks_bf16 = precision is Precision.BF16 and not accelerator.bf16
        if lacks_bf16 or (precision is Precision.FP8 and accelerator.fp8_flops_per_s is None):
            known = [Precision.FP32, Precision.FP16]
            known += [Precision.BF16] if accelerator.bf16 else []
            known += [Precision.FP8] if accelerator.fp8_flops_per_s else []
            names = " ".join(kind.value for kind in known)
            raise ConfigError(f"{gpu} does not compute in {precision.value}; valid: {names}.")


def machine_of(cluster: ClusterSpec) -> Machine:
    """The machine that all nodes of a cluster are."""
    node = cluster.nodes[0]
    usual = machine(
        node.devices[0].name,
        gpus_per_node=len(node.devices),
        network_bytes_per_s=node.network_bytes_per_s,
    )
    if node.link_bytes_per_s is None:
        return usual
    return replace(usual, link=replace(usual.link, bytes_per_s=node.link_bytes_per_s))


_TRAINER = "megatron"
_WRITTEN = 128
"""``seq_length_dec`` of NeMo 1.0's T5 and mT5, of which all its sizes read 512."""


def usual_training(
    architecture: Architecture,
    sequence: int,
    nodes: Machine,
    precision: Precision = Precision.BF16,
    *,
    written: int | None = None,
) -> Training:
    """Adam and the habits of Megatron-LM, on which NeMo stands.

    Args:
        architecture: the model.
        sequence: tokens of a sample.
        nodes: equal machines.
        precision: of the matrix products.
        written: tokens of a decoder behind an encoder; None: NeMo's. Others have none.
    """
    if not architecture.encoder_layers:
        written = None
    elif written is None:
        written = min(sequence, _WRITTEN)
    asked = Workload(
        architecture=architecture,
        sequence_length=sequence,
        decoder_sequence_length=written,
        precision=precision,
    )
    usual = TRAINERS[_TRAINER].applied(asked)
    software = replace(usual.software, flash_attention=runs_flash(architecture))
    return Training(workload=replace(usual, software=software), machine=nodes)
