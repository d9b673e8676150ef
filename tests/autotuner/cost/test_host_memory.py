"""Host memory of what is offloaded: bytes a weight as published, and how ranks share a node."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import LayoutColumns, estimate, parameters
from autoconf_launch.autotuner.cost.fitting import host_bytes
from autoconf_launch.core import Framework, Layout, Offload, Software, WeightFormat, Workload
from autoconf_launch.tuning_spaces import machine, named_model

LLAMA = named_model("llama2-7b")
DEEPSPEED = Workload(
    model=LLAMA, sequence_length=512, software=Software(framework=Framework.DEEPSPEED)
)
GPUS = 8


def need(workload: Workload = DEEPSPEED, **layout: Any) -> float:
    columns = LayoutColumns.from_layouts([Layout(**layout)])
    return float(host_bytes(columns, workload, GPUS)[0])


def each(workload: Workload = DEEPSPEED, **layout: Any) -> float:
    """Bytes a weight of the model."""
    return need(workload, **layout) / parameters(LLAMA)


def test_offloaded_state_takes_published_bytes_a_weight_over_ranks() -> None:
    assert need(data_parallel=8, zero_stage=3) == 0
    # DeepSpeed's documentation, "Memory Requirements": 16 and 18, without its buffers.
    assert each(data_parallel=8, zero_stage=2, offload=Offload.OPTIMIZER) == pytest.approx(16)
    assert each(data_parallel=8, zero_stage=3, offload=Offload.PARAMETERS) == pytest.approx(18)
    fsdp = replace(DEEPSPEED, software=Software(framework=Framework.FSDP))
    away = each(fsdp, data_parallel=8, zero_stage=3, offload=Offload.PARAMETERS)
    assert away == pytest.approx(16)
    assert each(data_parallel=8, offload=Offload.OPTIMIZER) == pytest.approx(8 * 16)
    away = each(data_parallel=32, zero_stage=1, offload=Offload.OPTIMIZER)
    assert away == pytest.approx(16 / 4)
    assert each(pipeline_parallel=8, offload=Offload.OPTIMIZER) == pytest.approx(16)
    away = each(data_parallel=2, zero_stage=1, offload=Offload.OPTIMIZER)
    assert away == pytest.approx(16)
    # Only adapters are updated there; ZeRO 3 moves the stored weights, too.
    lora = replace(DEEPSPEED, lora_rank=16, weight_format=WeightFormat.NF4)
    assert each(lora, data_parallel=8, zero_stage=1, offload=Offload.OPTIMIZER) < 0.2
    stored = each(lora, data_parallel=8, zero_stage=3, offload=Offload.PARAMETERS)
    assert 0.5 < stored < 0.8


def test_predictions_have_it_on_a_grid_as_for_single_layouts() -> None:
    layouts = [
        Layout(data_parallel=dp, zero_stage=2, offload=offload)
        for dp in (1, 8)
        for offload in Offload
    ]
    found = estimate(
        LayoutColumns.from_layouts(layouts), DEEPSPEED, machine("A100", gpus_per_node=GPUS)
    )
    assert found.host_bytes_C is not None
    singly = [
        need(data_parallel=x.data_parallel, zero_stage=2, offload=x.offload) for x in layouts
    ]
    assert np.allclose(found.host_bytes_C, singly)
