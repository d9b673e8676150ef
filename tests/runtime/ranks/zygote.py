"""Starts ranks fast: a process that has imported torch and becomes each script by a fork.

Each line of its input is one launch; the answer is the exit codes of its ranks. A fork runs the
script as ``python script.py`` does, and ends as the interpreter ends. No tensor is computed
before a fork.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import autoconf_launch.runtime.start
import autoconf_launch.runtime.trace  # noqa: F401


def become(order: dict[str, Any], rank: int) -> str:
    """Take over the rank's environment, arguments and streams; gives the script."""
    os.environ.update(order["environments"][rank])
    for number, mode, name in ((0, "r", None), (1, "w", "stdout"), (2, "w", "stderr")):
        path = Path(order["folder"]) / f"{rank}.{name}" if name else Path(os.devnull)
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
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
