"""The inference half of the verb search: points, engines, runs, results."""

from .engines import (
    FIRST_TOKEN_FILE,
    INFERENCE_ENGINES,
    ITERATIONS,
    LATENCY_FILE,
    PERCENTS,
    TIMED_S,
    WARM_UP,
    EngineRun,
    InferenceEngine,
    LoadFigures,
    LoadTest,
    SharedProcess,
    SharingEngine,
    json_object,
    load_engine,
    read_figures,
    read_number,
)
from .vllm_engine import VllmEngine
