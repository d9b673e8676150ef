"""Words of vLLM's commands, which are also the arguments of ``vllm.LLM``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoconf_launch.core import Precision

from .. import EngineRun

COMMAND = "vllm"
TYPE_OPTIONS = {
    Precision.FP32: {"dtype": "float32"},
    Precision.FP16: {"dtype": "float16"},
    Precision.BF16: {"dtype": "bfloat16"},
    Precision.FP8: {"dtype": "bfloat16", "quantization": "fp8"},
}


def engine_options(run: EngineRun, model: Path) -> dict[str, Any]:
    """Options of every vLLM process for a model and its layout."""
    layout, task = run.task.layout, run.task
    return {
        "model": str(model),
        "load_format": "dummy",
        "skip_tokenizer_init": run.beam_width == 1,
        "tensor_parallel_size": layout.tensor_parallel,
        "pipeline_parallel_size": layout.pipeline_parallel,
        "max_model_len": task.input_len + task.output_len,
        "max_num_seqs": layout.micro_batch * run.beam_width,
        **TYPE_OPTIONS[task.precision],
    }


def option_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The same as words of a command; what is False is left away."""
    words: list[str] = []
    for name, value in options.items():
        if value is not False:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    return tuple(words)
