"""A tune whose agent was stopped: limits and signals hold all the same."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Place, wait_until

HANGS = """
import argparse, time
from pathlib import Path
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
arguments = parser.parse_args()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1000):
    model(torch.randn(arguments.batch_size, 8)).sum().backward()
    Path("trains").touch()
    time.sleep(1000)
"""


def with_stopped_agent(place: Place, *flags: str) -> subprocess.Popen[str]:
    """A tune once its profile run hangs, with its agent stopped."""
    (place.folder / "hangs.py").write_text(HANGS)
    started = place.start("--autotuning=tune", "--num_gpus=1", *flags, "hangs.py")
    wait_until((place.folder / "trains").exists, "it never trained")
    (agent,) = (pid for pid in place.living() if b"agent.py" in command_of(pid))
    os.kill(agent, signal.SIGSTOP)
    return started


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.slow
def test_ctrl_c_ends_a_tune_whose_agent_is_stopped(place: Place) -> None:
    started = with_stopped_agent(place, "--allow-global-batch-change")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=20)
    assert started.returncode == 130


@pytest.mark.slow
def test_a_trial_whose_agent_is_stopped_has_its_time_limit(place: Place) -> None:
    limit = "--trial-timeout=30"
    started = with_stopped_agent(place, "--allow-global-batch-change", limit)
    output, _ = started.communicate(timeout=60)
    assert (started.returncode, "did not end within 30 s" in output) == (3, True), output
