"""Flags of a training to its setup, for memory and for time. Not: its layout.

The one place where a TrainingSetup becomes a Workload, whether a flag or a table names its code.
"""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.cost import (
    TRAINERS,
    Framework,
    Machine,
    TrainingSetup,
    Workload,
    model_weights,
    trained_weights,
    trainer,
)
from autoconf_launch.autotuner.planner import Training
from autoconf_launch.autotuner.sizing import runs_flash
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, Precision
from autoconf_launch.tuning_spaces import machine

from .training_flags import TrainingRequest

_MATRICES_REPEATED = 0.5
"""Share of the GEMMs that torchtitan's selective recomputation repeats."""


def choose_training(flags: TrainingRequest, cluster: ClusterSpec) -> TrainingSetup:
    """The setup with the trainer's habits, where no flag says otherwise.

    Raises:
        ConfigError: a GPU does not compute in this precision.
    """
    _check_precision(flags.precision, cluster)
    setup = trainer(flags.trainer).applied(
        TrainingSetup(
            sequence_length=flags.sequence,
            precision=flags.precision,
            optimizer=flags.optimizer,
            lora_rank=flags.lora_rank,
            frozen=flags.frozen,
            compiled=flags.compiled,
        )
    )
    if flags.flash_attention is None:
        return setup
    return replace(setup, flash_attention=flags.flash_attention)


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


def workload_of(architecture: Architecture, setup: TrainingSetup, nodes: Machine) -> Workload:
    """What the time model needs to know of a training.

    Codes of the time of flash attention reduce gradients beside the backward pass; of all codes
    NeMo alone keeps 8-bit weights, since it runs on Transformer Engine.
    """
    modern, engine = setup.flash_attention, setup.transformer_engine
    return Workload(
        architecture=architecture,
        sequence_length=setup.sequence_length,
        decoder_sequence_length=setup.decoder_sequence_length,
        precision=setup.precision,
        flash_attention=modern and nodes.accelerator.flash > 0,
        compiled=setup.compiled or engine,
        transformer_engine=engine,
        flat_gathers=modern and setup.framework is not Framework.DEEPSPEED,
        selective_products=_MATRICES_REPEATED if setup.framework is Framework.FSDP else 0.0,
        async_tensor=engine,
        overlapped_reduce=modern,
        trained=_trained_share(architecture, setup),
    )


def _trained_share(architecture: Architecture, setup: TrainingSetup) -> float:
    if setup.lora_rank is None and not setup.frozen:
        return 1.0
    return trained_weights(architecture, setup).total / model_weights(architecture).total


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
    asked = TrainingSetup(
        sequence_length=sequence, precision=precision, decoder_sequence_length=written
    )
    usual = TRAINERS[_TRAINER].applied(asked)
    setup = replace(usual, flash_attention=runs_flash(architecture))
    return Training(
        architecture=architecture,
        setup=setup,
        workload=workload_of(architecture, setup, nodes),
        machine=nodes,
    )
