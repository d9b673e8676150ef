"""In the place of vLLM: answers take no time, and a batch of 4 ends the process.

Only what ``batches.py`` calls; the real one is run by ``make test-vllm``.
"""

import os
import sys
from pathlib import Path
from typing import Any


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        self.max_tokens: int = given["max_tokens"]


class LLM:
    def __init__(self, **given: Any) -> None:
        with Path(os.environ["FAKE_VLLM_STARTS"]).open("a") as file:
            file.write(f"tp{given['tensor_parallel_size']} {given['max_num_seqs']}\n")

    def generate(
        self, prompts: list[Any], sampling_params: SamplingParams, use_tqdm: bool
    ) -> None:
        if len(prompts) == 4:
            said = "(Worker pid=7) ERROR 11-25 23:39:50 [core.py:9] ValueError: no room for 4"
            sys.stdout.write(f"{said}\n")
            raise RuntimeError("see above for the root cause")
