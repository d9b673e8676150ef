"""Constants of torch that predict text generation on a CPU, measured apart from any search.

``taskset -c 0 python benchmarks/cpu_constants.py`` times products of few and many rows, and the
host's part of a decoder layer of transformers; under ``torchrun --nproc-per-node 2`` it times
gloo's all-reduce by itself and between products. Times are medians. A busy machine needs real-time
priority (``chrt -f 20``). ``--write FILE`` appends to a page.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROWS = (1, 2, 4, 8, 16, 32, 60, 120, 240, 480)
HIDDEN, WIDE, MATRICES = 768, 3072, 40
"""More weights than caches hold, 378 MB."""
BUFFERS_KIB = (3, 24, 180, 1440)


def median_s(action: Callable[[], object], tries: int = 12) -> float:
    """Median seconds of an action, after a warm-up run."""
    action()
    times = []
    for _ in range(tries):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def product_lines() -> Iterator[str]:
    """Weights read a second and operations a second of each number of rows."""
    weights = [torch.randn(HIDDEN, WIDE) for _ in range(MATRICES)]
    yield "\n| rows | ms a product | weights, GB/s | GFLOP/s |\n| --- | --- | --- | --- |"
    for rows in ROWS:
        values = torch.randn(rows, HIDDEN)

        def multiply(values: torch.Tensor = values) -> None:
            for weight in weights:
                values @ weight

        each_s = median_s(multiply) / MATRICES
        read, flops = 4e-9 * HIDDEN * WIDE / each_s, 2e-9 * rows * HIDDEN * WIDE / each_s
        yield f"| {rows} | {1e3 * each_s:.3f} | {read:.1f} | {flops:.0f} |"


def layer_lines() -> Iterator[str]:
    """Host time of a layer: what each additional layer of a tiny model adds to a token."""
    import transformers as library

    small: dict[str, Any] = {"vocab_size": 128, "bos_token_id": 0, "eos_token_id": 0}
    gpt = {"n_embd": 64, "n_head": 4, "n_positions": 128}
    llama = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    yield "\n| model | host time of a layer, ms |\n| --- | --- |"
    for kind, shape in (("GPT2", gpt), ("Llama", llama)):
        head = "GPT2LMHeadModel" if kind == "GPT2" else "LlamaForCausalLM"
        times = []
        for layers in (4, 12):
            config: Any = getattr(library, f"{kind}Config")(**small, **shape)
            config.num_hidden_layers = layers
            times.append(token_s(getattr(library, head)(config).eval(), library))
        yield f"| {kind} | {1e3 * (times[1] - times[0]) / 8:.3f} |"


def token_s(model: Any, library: Any) -> float:
    """Seconds of a token of a model, with a cache that is there already."""
    cache = library.StaticCache(config=model.config, max_cache_len=100)
    ids = torch.zeros(1, 1, dtype=torch.int64)
    with torch.inference_mode():
        return median_s(lambda: model(input_ids=ids, past_key_values=cache, use_cache=True), 60)


def gloo_lines() -> Iterator[str]:
    """Time of all-reduces by themselves, and their cost between products on both ranks."""
    yield "\n| gloo, 2 ranks | ms | GB/s |\n| --- | --- | --- |"
    for size in BUFFERS_KIB:
        buffer = torch.zeros(size * 256)
        each_s = median_s(lambda buffer=buffer: dist.all_reduce(buffer), 100)
        yield f"| all-reduce of {size} KiB | {1e3 * each_s:.3f} | {size * 1.024e-6 / each_s:.2f} |"
    weights = [torch.randn(HIDDEN, WIDE) for _ in range(MATRICES)]
    row, short = torch.randn(1, HIDDEN), torch.zeros(HIDDEN)

    def multiply(joins: bool) -> None:
        for weight in weights:
            row @ weight
            if joins:
                dist.all_reduce(short)

    added_s = (median_s(lambda: multiply(True)) - median_s(lambda: multiply(False))) / MATRICES
    yield f"| all-reduce of 3 KiB between products | {1e3 * added_s:.3f} |  |"


def main() -> None:
    """Measure, and print or append."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    joined = "RANK" in os.environ
    if joined:
        dist.init_process_group("gloo")
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[dist.get_rank()]})
    lines = list(gloo_lines()) if joined else [*product_lines(), *layer_lines()]
    text = "\n".join(lines) + "\n"
    if joined and dist.get_rank():
        return
    if given.write:
        with given.write.open("a") as file:
            file.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
