"""The program of a process of vLLM that times batches, one after the other; ``batches FILE``.

vLLM's own Python runs this file by its path, so it imports nothing of ours. A JSON file has its
settings (see :mod:`.vllm_engine`); the figures of each batch are written, once they are complete,
in the format of ``vllm bench latency``.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Load the model once, and time every batch of every length."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from vllm import LLM

    llm = LLM(**asked["engine"])
    for batch in asked["batches"]:
        prompts = _prompts(batch["size"], asked["input_len"], asked["token_bound"])
        for file, output_len in ((batch["first_token"], 1), (batch["whole"], asked["output_len"])):
            write = _writer(llm, prompts, output_len, asked["beam_width"])
            _time(write, Path(file), asked)


def _prompts(size: int, input_len: int, bound: int) -> list[dict[str, list[int]]]:
    chosen = random.Random(0)
    return [
        {"prompt_token_ids": [chosen.randrange(bound) for _ in range(input_len)]}
        for _ in range(size)
    ]


def _writer(llm: Any, prompts: list[Any], output_len: int, beam: int) -> Callable[[], object]:
    from vllm import SamplingParams
    from vllm.sampling_params import BeamSearchParams

    if beam > 1:
        beams = BeamSearchParams(beam_width=beam, max_tokens=output_len, ignore_eos=True)
        return lambda: llm.beam_search(prompts, beams)
    greedy = SamplingParams(
        temperature=0.0, ignore_eos=True, max_tokens=output_len, detokenize=False
    )
    return lambda: llm.generate(prompts, sampling_params=greedy, use_tqdm=False)


def _time(write: Callable[[], object], file: Path, asked: dict[str, Any]) -> None:
    for _ in range(asked["warm_up"]):
        write()
    latencies: list[float] = []
    while len(latencies) < asked["iterations"] and sum(latencies) < asked["most_s"]:
        start_s = time.perf_counter()
        write()
        latencies.append(time.perf_counter() - start_s)
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps({"latencies": latencies}) + "\n", encoding="utf-8")
    part.replace(file)


if __name__ == "__main__":
    main()
