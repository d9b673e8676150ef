from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Accelerator, CollectiveRate, Link, Machine
from autoconf_launch.core import Workload

from ...builders import architecture

RATES = (
    CollectiveRate(ranks=2, latency_s=10e-6, link_fraction=0.5),
    CollectiveRate(ranks=8, latency_s=40e-6, link_fraction=0.8),
)
MACHINE = Machine(
    accelerator=Accelerator(
        name="round",
        half_flops_per_s=100e12,
        fp32_flops_per_s=25e12,
        tf32_flops_per_s=50e12,
        fp8_flops_per_s=200e12,
        reached=1.0,
        multiprocessors=100,
        memory_bytes=80 * 2**30,
        memory_bytes_per_s=1e12,
    ),
    gpus_per_node=8,
    link=Link(bytes_per_s=100e9, rates=(RATES,)),
    node_network_bytes_per_s=80e9,
)
"""Round numbers: 100 TFLOP/s, 1 TB/s, links of 100 GB/s, 80 GB/s of cards for 8 GPUs."""
GPT = architecture("gpt", layers=24, hidden=2048, heads=16, vocabulary=51200)
WORKLOAD = Workload(model=GPT, sequence_length=2048)


@pytest.fixture(autouse=True)
def _errors_of_numbers_are_errors() -> Any:
    with np.errstate(divide="raise", invalid="raise"):
        yield
