"""The training that NVIDIA's tools plan for, as the cost model sees it. Not: its layout."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.cost.model.hardware import Machine
from autoconf_launch.autotuner.cost.trainers import TRAINERS
from autoconf_launch.autotuner.cost.training_setup import Format, TrainingSetup
from autoconf_launch.autotuner.layouts.pricing import Training
from autoconf_launch.autotuner.recommend.architectures import runs_flash
from autoconf_launch.core import Architecture

from .training_choice import workload_of

_TRAINER = "megatron"


def usual_training(
    architecture: Architecture, sequence: int, nodes: Machine, precision: Format = Format.BF16
) -> Training:
    """Adam and the habits of Megatron-LM, on which NeMo stands.

    Args:
        architecture: the model.
        sequence: tokens of a sample.
        nodes: equal machines.
        precision: of the matrix products.
    """
    usual = TRAINERS[_TRAINER].applied(TrainingSetup(sequence=sequence, precision=precision))
    setup = replace(usual, flash_attention=runs_flash(architecture))
    return Training(
        architecture=architecture,
        setup=setup,
        workload=workload_of(architecture, setup, nodes),
        machine=nodes,
    )
