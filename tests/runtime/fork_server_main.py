"""Starts ranks fast: a process that has imported its arguments and becomes scripts by forks.

Each line of its input is one launch; the answer is the exit codes of its ranks. A fork runs the
script as ``python script.py`` does, and ends as the interpreter ends. No tensor is computed
before a fork. A launch that names ``injected`` arms the probe from there, as the hook behind
``import torch`` does; its sources are compiled once for all launches.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import runpy
import sys
from functools import cache
from pathlib import Path
from typing import Any


@cache
def hook_of(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("injected", file)
    assert spec
    assert spec.loader
    hook: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    compiled = {
        str(path): hook._RenamedLoader("", str(path)).get_code("")
        for folder in ("core", "runtime")
        for path in Path(hook.ROOT, folder).rglob("*.py")
    }
    hook._RenamedLoader.get_code = lambda loader, name: compiled[loader.path]
    return hook


def become(order: dict[str, Any], rank: int) -> str:
    """Take over the rank's environment, arguments and streams; gives the script."""
    os.environ.update(order["environments"][rank])
    for number, mode, name in ((0, "r", None), (1, "w", "stdout"), (2, "w", "stderr")):
        path = Path(order["folder"]) / f"{rank}.{name}" if name else Path(os.devnull)
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    os.chdir(order["working_directory"])
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    if order["injected"]:
        hook_of(order["injected"]).arm()
    return sys.argv[0]


def serve() -> str:
    """Answer orders; returns only in a fork, with the script to run."""
    for line in sys.stdin:
        order, ranks = json.loads(line), []
        if order["injected"]:
            hook_of(order["injected"])
        for rank in range(len(order["environments"])):
            child = os.fork()
            if child == 0:
                return become(order, rank)
            ranks.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
        sys.stdout.write(f"{json.dumps(codes)}\n")
        sys.stdout.flush()
    sys.exit(0)


for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # else each fork copies all of torch to collect it in the end
runpy.run_path(serve(), run_name="__main__")
