"""The inference half of the verb search: points, engines, runs, results."""

from .engines import (
    FIRST_TOKEN_FILE,
    INFERENCE_ENGINES,
    ITERATIONS,
    LATENCY_FILE,
    TIMED_S,
    WARM_UP,
    EngineRun,
    InferenceEngine,
    SharedProcess,
    SharingEngine,
    json_object,
    load_engine,
    read_figures,
    read_number,
)
from .load_tests import PERCENTS, LoadFigures, LoadTest
