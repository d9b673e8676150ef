"""Steps of our own engine on a GPU: a trial waits for the device no more than a training does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.core import TASK_VARIABLE, Mode, RankResult, RankTask, decode, result_file
from autoconf_launch.launcher.machine import free_port

END = 6
SCRIPT = f"""
import torch
from torch import nn
from autoconf_launch.runtime import initialize

config = {{
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 0.001}}}},
}}
engine = initialize(nn.Linear(8, 8), config, loss_fn=lambda model, batch: model(batch).mean())
batch = torch.ones(engine.samples_per_step, 8, device=engine.device)
for number in range(1, 99):
    torch.cuda.set_sync_debug_mode("error" if 2 < number < {END} else "default")
    engine.step(batch)
"""


@pytest.mark.parametrize("most_steps", [None, END + 3], ids=["fixed", "moving"])
def test_a_measured_step_does_not_wait_for_the_device(
    tmp_path: Path, most_steps: int | None
) -> None:
    task = RankTask(
        mode=Mode.MEASURE,
        folder=str(tmp_path),
        attempt="a",
        start_step=2,
        end_step=END,
        most_steps=most_steps,
    )
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", SCRIPT),
        env={
            **os.environ,
            **place,
            "MASTER_PORT": str(free_port()),
            TASK_VARIABLE: task.to_variable(),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = decode(RankResult, json.loads((tmp_path / result_file(0)).read_text()))
    assert [step.step for step in result.steps] == list(range(1, END + 1))
    assert (result.failure, result.end_step) == (None, END)
