"""The engine native: transformers' classes under our own tensor and pipeline parallelism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import BUILTIN_PRECISIONS, encode

from .engines import LATENCY_FILE, EngineRun, read_figures

MODULE = "autoconf_launch.runtime.generation"
_BASE, _POINT = "base.json", "generation.json"


class NativeEngine:
    """Greedy, kernel by kernel, with a preallocated cache; see ``runtime/generation``."""

    def why_not(self, run: EngineRun) -> str:
        if run.task.precision not in BUILTIN_PRECISIONS:
            known = ", ".join(one.value for one in BUILTIN_PRECISIONS)
            return (
                f"engine native computes in {known}, not in data_type {run.task.precision.value}; "
                "give one of these."
            )
        if run.beam_width > 1:
            return (
                f"beam_width is {run.beam_width}, but engine native writes greedily; set it to 1 "
                "or take engine=vllm."
            )
        if run.task.layout.pipeline_parallel > 1 and run.family in ("t5", "mt5"):
            return (
                "engine native cuts one list of blocks into stages, an encoder-decoder has two; "
                "pipeline_parallel_sizes must be [1]."
            )
        return ""

    def why_not_here(self) -> str:
        if find_spec("transformers") is None:
            return (
                "engine native builds models with transformers, which is not installed; run "
                "pip install 'autoconf-launch[search]'."
            )
        return ""

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        return {
            run.folder / _BASE: run.base.to_json() + "\n",
            run.folder / _POINT: json.dumps(encode(run.task), indent=2) + "\n",
        }

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        words = ("python3", "-m", MODULE, *self.arguments(run))
        return ((*words, "--output-json", str(run.folder / LATENCY_FILE)),)

    def arguments(self, run: EngineRun) -> tuple[str, ...]:
        base, point = (str(run.folder / name) for name in (_BASE, _POINT))
        return ("--base-config", base, "--generation", point)

    def tasks_per_run(self, run: EngineRun) -> int:
        return run.task.layout.world_size

    def read(self, run: EngineRun) -> Outcome:
        return read_figures(run)
