from collections.abc import Sequence

import numpy as np

from autoconf_launch.autotuner.inference import (
    Generation,
    GenerationTable,
    PointColumns,
    engine_habits,
    estimate_generation,
)
from autoconf_launch.tuning_spaces import machine, named_model

Point = tuple[int, int, int]
"""Tensor ranks, pipeline stages, batch."""


def columns(points: Sequence[Point]) -> PointColumns:
    tensor, pipeline, batch = np.array(points, dtype=np.int64).T
    return PointColumns(tensor_C=tensor, pipeline_C=pipeline, batch_C=batch)


def generation(model: str = "llama3.1-8b", read: int = 512, written: int = 64) -> Generation:
    return Generation(model=named_model(model), input_tokens=read, output_tokens=written)


def estimates(
    points: Sequence[Point],
    asked: Generation | None = None,
    *,
    gpu: str = "A100-SXM-80GB",
    engine: str = "vllm",
) -> GenerationTable:
    return estimate_generation(
        columns(points), asked or generation(), machine(gpu), engine_habits(engine)
    )
