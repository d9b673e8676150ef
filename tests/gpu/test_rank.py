"""Parts of a rank that only a GPU can show: its memory, and its forks."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import torch

from autoconf_launch.runtime.rank import start_meter

GIB = 1 << 30
FORK = """
    import importlib, os
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    from autoconf_launch.runtime.fork_server import server
    for name in server.PRELOADED:
        importlib.import_module(name)
    server._end_threads_of_libraries()
    print("can fork:", server.can_fork(), flush=True)
    pid = os.fork()
    if pid == 0:
        import torch
        x = torch.ones(3, device="cuda", requires_grad=True)
        x.sum().backward()
        print("GPUs of the fork:", torch.cuda.device_count(), flush=True)
        os._exit(0)
    print("its exit status:", os.waitpid(pid, 0)[1])
"""


def test_the_peak_of_a_rank_is_at_least_what_torch_reserved() -> None:
    torch.cuda.empty_cache()
    meter = start_meter(torch.device("cuda", 0), None, 0)
    kept = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    use = meter.use()
    assert use.peak_bytes >= kept.numel()
    free, total = torch.cuda.mem_get_info()
    assert use.peak_bytes <= total - free
    assert use.limit_bytes <= total


def test_a_fork_of_the_server_that_preloads_torch_computes_on_the_gpu() -> None:
    program = (sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK))
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    text = done.stdout + done.stderr
    assert "can fork: True" in text, text
    assert "GPUs of the fork: 1" in text, text
    assert "its exit status: 0" in text, text
