"""The training that NVIDIA's tools plan for, as the cost model sees it. Not: its layout."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.cost.model.hardware import Machine
from autoconf_launch.autotuner.cost.trainers import TRAINERS
from autoconf_launch.autotuner.cost.training_setup import TrainingSetup
from autoconf_launch.autotuner.layouts.pricing import Training
from autoconf_launch.autotuner.recommend.architectures import runs_flash
from autoconf_launch.core import Architecture, Precision

from .training_choice import workload_of

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
    asked = TrainingSetup(sequence=sequence, precision=precision, written=written)
    usual = TRAINERS[_TRAINER].applied(asked)
    setup = replace(usual, flash_attention=runs_flash(architecture))
    return Training(
        architecture=architecture,
        setup=setup,
        workload=workload_of(architecture, setup, nodes),
        machine=nodes,
    )
