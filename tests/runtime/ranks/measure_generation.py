"""A measured generation of a tiny Llama, on as many tensor ranks as the first word says."""

from __future__ import annotations

import sys

from generate_all import base_of  # type: ignore[import-not-found]

from autoconf_launch.core import GenerationTask, Layout
from autoconf_launch.runtime.generation import measure_generation

if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    layout = Layout(tensor_parallel=ranks, micro_batch=3)
    measure_generation(base_of("llama"), GenerationTask(layout=layout, input_len=11, output_len=9))
