"""Launches of scripts on several hosts, as a user starts them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "autoconf_launch.launcher.cli")
EXAMPLE = Path(__file__).parents[2] / "examples" / "01_pretrain_gpt"
MEET = """
import os, socket, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
os.write(1, f"rank {os.environ['RANK']} on {socket.gethostname()} of {int(x)}\\n".encode())
if sys.argv[-1] == "forever":
    while True:
        dist.all_reduce(x)
        time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
sys.exit(7 if sys.argv[-1] == "fails" and os.environ["RANK"] == "3" else 0)
"""
SAYS_WORDS = """
import json, os, pathlib, sys
files = [p.read_bytes() for p in pathlib.Path().rglob("*") if p.is_file()]
seen = any(("hf_" + "abcdefgh").encode() in data for data in files)
said = [len(files) > 3, seen, os.environ.get("HF_TOKEN", "")[:5], sys.argv[1:]]
os.write(1, (json.dumps(said) + chr(10)).encode())
"""
WORDS = ["--", "-x", "$(id)", "a'b\"c", "line\nline", "%j %N", "*", ";", "é"]
HOST = "socket.gethostname()"
_TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def make_script(folder: Path, host: str = HOST) -> Path:
    """A script that meets all ranks, in a folder whose name a shell or an engine would read.

    ``host``: expression by which a rank names its host.
    """
    folder = folder / "it's $HOME $(id) %j %n `x`"
    folder.mkdir()
    script = folder / "meet.py"
    script.write_text(MEET.replace(HOST, host))
    return script


def write_example(folder: Path, **changed: Any) -> None:
    """The script and the configuration of the example, with other values of some keys."""
    shutil.copy(EXAMPLE / "train.py", folder)
    config = json.loads((EXAMPLE / "config.json").read_text()) | changed
    (folder / "config.json").write_text(json.dumps(config))


def launch(
    flags: Sequence[str], script: Path, *words: str, variables: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start a launch in the script's folder; a token is in its environment."""
    return subprocess.Popen(
        (*COMMAND, *flags, "--no_local_rank", str(script), *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=script.parent,
        env={**variables, "HF_TOKEN": _TOKEN},
    )


def await_ranks(process: subprocess.Popen[str], count: int) -> None:
    """Wait until the first of ``count`` ranks has met the others."""
    assert process.stdout
    assert f"of {count}" in process.stdout.readline()


def run_line(flags: Sequence[str], script: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and the only line of a launch that is refused."""
    done = subprocess.run(
        (*COMMAND, *flags, str(script)),
        env=variables,
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=120,
        check=False,
    )
    (line,) = done.stderr.strip().splitlines() or [""]
    return done.returncode, line


def wait_until(met: Callable[[], object], timeout_s: float) -> bool:
    """True if something is so within this time."""
    until_s = time.monotonic() + timeout_s
    while not met():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.1)
    return True
