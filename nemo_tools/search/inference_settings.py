"""``search_config.inference_settings`` in types, of NeMo 1.0's tool and of BigNLP's.

Keys that stand in the section itself are BigNLP's; where both are given, they win.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError, Precision, RawConfig, nearest_known

from .compose import INFERENCE_SECTION
from .reader import Reader, absolute_path

_RUN, _BENCHMARK = (*INFERENCE_SECTION, "run"), (*INFERENCE_SECTION, "benchmark")
_PRECISIONS = {
    **{one.value: one for one in Precision},
    "float16": Precision.FP16,
    "bfloat16": Precision.BF16,
    "float32": Precision.FP32,
}
_USUAL_READ, _USUAL_WRITTEN = (60,), (20,)
"""Lengths in NVIDIA's files."""
_IGNORED = {
    (*_BENCHMARK, "topk"): 4,
    (*_BENCHMARK, "topp"): 0.0,
    (*INFERENCE_SECTION, "start_id"): None,
    (*INFERENCE_SECTION, "end_id"): None,
}
"""Keys that change no time, with the values of NVIDIA's files, which are not worth a note."""
_NAME = re.compile(r"[\w.+-]+")
_LEAST_SEXAGESIMAL_S = 60
"""YAML reads 1:30:00 as 5400 and 1:00 as 60; what is less was typed without a unit."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)|(\d+):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """Settings of an inference search; None leaves the choice to us.

    Attributes:
        name: of the model in names of folders; None: as the training's runs.
        vocabulary: tokens that the model knows; None: as in training.
        time_limit: of a run, as Slurm reads it.
        results: folder of the results; None: that of the training search.
        input_lens, output_lens: tokens; each pair is a search of its own.
        beam_width: sequences that are kept; 1 is greedy.
        without_effect: keys that are set and change nothing here.
        max_latency_s: bounds what is recommended, and nothing else.
        top_n: points that are recommended.
        engine: by its name.
        container: of jobs; None: that of the training.
    """

    name: str | None
    vocabulary: int | None
    gpus_per_node: int | None
    precision: Precision
    time_limit: str
    results: Path | None
    tensor: tuple[int, ...] | None
    pipeline: tuple[int, ...] | None
    batches: tuple[int, ...] | None
    input_lens: tuple[int, ...]
    output_lens: tuple[int, ...]
    beam_width: int
    without_effect: tuple[str, ...]
    max_latency_s: float | None
    top_n: int
    engine: str | None
    container: str | None

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are read and written, for each search."""
        return tuple((read, written) for read in self.input_lens for written in self.output_lens)

    @property
    def time_limit_s(self) -> float:
        """Seconds of a run."""
        found = _TIME.fullmatch(self.time_limit)
        assert found is not None
        days, hours, minutes, seconds, alone_m, alone_s = (int(n or 0) for n in found.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * (minutes + alone_m) + seconds + alone_s


def read_inference(document: RawConfig) -> InferenceSettings:
    """Check every value.

    Raises:
        ConfigError: one is of the wrong kind; the message names its key.
    """
    own, run = Reader(document, INFERENCE_SECTION), Reader(document, _RUN)
    benchmark = Reader(document, _BENCHMARK)
    latency_ms = own.optional_number("max_latency_ms")
    results = own.text("logs") or run.text("results_dir")
    return InferenceSettings(
        name=_name(run.text("model_train_name")),
        vocabulary=own.optional_whole("vocab_size"),
        gpus_per_node=run.optional_whole("gpus_per_node"),
        precision=_precision(run.text("data_type") or Precision.FP16.value),
        time_limit=_time_limit(run.text("time_limit") or "0:30:00"),
        results=None if results is None else absolute_path(results),
        tensor=own.sizes("tensor_parallel_sizes") or run.sizes("tensor_parallel_sizes"),
        pipeline=own.sizes("pipeline_parallel_sizes") or run.sizes("pipeline_parallel_sizes"),
        batches=own.sizes("max_batch_sizes") or benchmark.sizes("batch_sizes"),
        input_lens=own.lengths("input_seq_len") or benchmark.lengths("input_len") or _USUAL_READ,
        output_lens=(
            own.lengths("output_seq_len") or benchmark.lengths("output_len") or _USUAL_WRITTEN
        ),
        beam_width=benchmark.whole("beam_width", 1),
        without_effect=tuple(_without_effect(document)),
        max_latency_s=None if latency_ms is None else latency_ms / 1e3,
        top_n=own.whole("top_n", 10),
        engine=Reader(document, ()).text("engine"),
        container=Reader(document, ()).text("inference_container"),
    )


def _without_effect(document: RawConfig) -> Iterator[str]:
    for path, shipped in _IGNORED.items():
        value = document.get(path)
        if value is not None and value != shipped:
            yield path[-1]


def _name(given: str | None) -> str | None:
    if given is not None and not _NAME.fullmatch(given):
        raise ConfigError(
            f"search_config.inference_settings.run.model_train_name is {given!r}, but must be a "
            "name of letters, digits, dots and dashes, as folders have it."
        )
    return given


def _precision(given: str) -> Precision:
    if given not in _PRECISIONS:
        raise ConfigError(
            f"search_config.inference_settings.run.data_type is {given!r}; "
            f"{nearest_known(given, _PRECISIONS)}"
        )
    return _PRECISIONS[given]


def _time_limit(given: str) -> str:
    if given.isdecimal() and int(given) >= _LEAST_SEXAGESIMAL_S:
        minutes, seconds = divmod(int(given), 60)
        given = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if not _TIME.fullmatch(given):
        raise ConfigError(
            f"search_config.inference_settings.run.time_limit is {given!r}, but must be a time "
            "such as 0:30:00 (hours, minutes, seconds)."
        )
    return given
