"""The recommended layout under load: ``vllm bench throughput``, ``serve`` and ``sweep``.

One batch says how quick a layout is; these say what it serves when requests come beside each
other. Names of options and JSON fields are those of ``vllm/benchmarks/{throughput,serve}.py`` and
``sweep/serve.py`` in version 0.32.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError

from .. import PERCENTS, EngineRun, LoadFigures, LoadTest, json_object, read_number
from .models import (
    COMMAND,
    engine_options,
    model_document,
    option_words,
    tokenizer_documents,
    vocabulary_rows,
)

_THROUGHPUT, _SWEEP, _CONCURRENCY = "throughput.json", "sweep", "concurrency.json"
_ROUNDS = 8
"""Requests of a test, for each that is served at once."""
_READY_S = 1800
"""A large model takes minutes to load."""


def load_test(run: EngineRun, folder: Path) -> LoadTest:
    """All requests at once without a server, then a server with 1, 2, 4 … requests at once."""
    task, most = run.task, run.task.layout.micro_batch
    model = folder / "model"
    documents = {"config.json": model_document(run)} | tokenizer_documents(vocabulary_rows(run))
    counts = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    sweep = [{"max_concurrency": count, "num_prompts": _ROUNDS * count} for count in counts]
    options = engine_options(run, model) | {"skip_tokenizer_init": False}
    lengths = {"random_input_len": task.input_len, "random_output_len": task.output_len}
    throughput = (
        options
        | lengths
        | {
            "dataset_name": "random",
            "num_prompts": _ROUNDS * most,
            "output_json": folder / _THROUGHPUT,
        }
    )
    return LoadTest(
        files={
            **{model / name: f"{json.dumps(text)}\n" for name, text in documents.items()},
            folder / _CONCURRENCY: json.dumps(sweep, indent=2) + "\n",
        },
        commands=(
            (*(COMMAND, "bench", "throughput"), *option_words(throughput)),
            _sweep_words(folder, options, lengths),
        ),
    )


def _sweep_words(
    folder: Path, options: Mapping[str, Any], lengths: dict[str, int]
) -> tuple[str, ...]:
    """A server, and a client for each number of requests at once."""
    served = {name: value for name, value in options.items() if name != "model"}
    client = lengths | {
        "model": options["model"],
        "dataset_name": "random",
        "ignore_eos": True,
        "metric_percentiles": ",".join(map(str, PERCENTS)),
    }
    server = (COMMAND, "serve", options["model"], *option_words(served))
    words = {
        "serve_cmd": shlex.join(server),
        "bench_cmd": shlex.join((COMMAND, "bench", "serve", *option_words(client))),
        "bench_params": folder / _CONCURRENCY,
        "server_ready_timeout": _READY_S,
        "num_runs": 1,
        "output_dir": folder,
        "experiment_name": _SWEEP,
    }
    return (*(COMMAND, "bench", "sweep", "serve"), *option_words(words))


def read_load(folder: Path) -> Iterator[LoadFigures]:
    """Figures of each file that the commands have left, the fewest requests at once first."""
    whole = folder / _THROUGHPUT
    if whole.exists():
        yield _read(whole)
    found = [_read(path) for path in sorted((folder / _SWEEP).glob("*/run=*.json"))]
    yield from sorted(found, key=lambda one: one.max_concurrency or 0)


def _read(path: Path) -> LoadFigures:
    benchmark = "throughput" if path.name == _THROUGHPUT else "serve"
    try:
        document = json_object(path)
        return (
            _throughput_figures(document)
            if benchmark == "throughput"
            else _serve_figures(document)
        )
    except ConfigError as error:
        return LoadFigures(benchmark=benchmark, reason=f"{path}: {error}")


def _throughput_figures(document: Mapping[str, Any]) -> LoadFigures:
    return LoadFigures(
        benchmark="throughput",
        requests_per_s=read_number(document, "requests_per_second"),
        tokens_per_s=read_number(document, "tokens_per_second"),
    )


def _serve_figures(document: Mapping[str, Any]) -> LoadFigures:
    def percentiles_s(metric: str) -> tuple[float, ...]:
        fields = (f"p{percent}_{metric}_ms" for percent in PERCENTS)
        return tuple(read_number(document, field) / 1e3 for field in fields)

    failed = int(read_number(document, "failed"))
    return LoadFigures(
        benchmark="serve",
        max_concurrency=int(read_number(document, "max_concurrency")),
        requests_per_s=read_number(document, "request_throughput"),
        tokens_per_s=read_number(document, "total_token_throughput"),
        output_tokens_per_s=read_number(document, "output_throughput"),
        ttft_s=percentiles_s("ttft"),
        token_s=percentiles_s("tpot"),
        latency_s=percentiles_s("e2el"),
        reason=f"{failed} requests failed" if failed else "",
    )
