"""The inference half of the verb search: points, engines, runs, results."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
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
else:
    __getattr__ = attach(
        __name__,
        {
            ".engines": (
                "FIRST_TOKEN_FILE INFERENCE_ENGINES ITERATIONS LATENCY_FILE TIMED_S WARM_UP "
                "EngineRun InferenceEngine SharedProcess SharingEngine json_object "
                "load_engine read_figures read_number"
            ),
            ".load_tests": "PERCENTS LoadFigures LoadTest",
        },
    )
