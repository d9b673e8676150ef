"""Starts probed ranks fast: has imported torch, and becomes each script by a fork.

Arms the probe from its injected folder, as the hook behind ``import torch`` does; the rest is
as in ``ranks/zygote.py``. A fork ends as the interpreter ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.optim
import torch.nn.parallel
import torch.utils.data  # noqa: F401


def injected(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("injected", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def become(order: dict[str, Any], rank: int) -> str:
    """Take over the rank's environment, arguments and streams; gives the script."""
    os.environ.update(order["environments"][rank])
    for number, mode, name in ((0, "r", None), (1, "w", "stdout"), (2, "w", "stderr")):
        path = Path(order["folder"]) / (f"{rank}.{name}") if name else Path(os.devnull)
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    os.chdir(order["working_directory"])
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    injected(order["injected"]).arm()
    return sys.argv[0]


def serve() -> str:
    """Answer orders; returns in a fork alone, with the script to run."""
    for line in sys.stdin:
        order, ranks = json.loads(line), []
        for rank in range(len(order["environments"])):
            child = os.fork()
            if child == 0:
                return become(order, rank)
            ranks.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
        sys.stdout.write(f"{json.dumps(codes)}\n")
        sys.stdout.flush()
    sys.exit(0)


runpy.run_path(serve(), run_name="__main__")
