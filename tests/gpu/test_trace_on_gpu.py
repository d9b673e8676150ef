"""Traces of models in a process that has used CUDA; these run on a null GPU too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.core import (
    MODEL_INFO_FILE,
    TASK_VARIABLE,
    Grade,
    Mode,
    ModelSpec,
    RankTask,
    decode,
)
from autoconf_launch.launcher.first_forward import trace_script
from autoconf_launch.launcher.first_forward.command import script_command
from autoconf_launch.runtime.profile import trace_model

DEADLINE_S = 120.0


class Model(nn.Module):
    """Names CUDA in its forward pass, and keeps a result of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.router_loss: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for layer in self.layers:
                x = layer(x.to("cuda", non_blocking=True)).relu()
        self.router_loss = x.float().square().mean()
        return self.router_loss


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    mean: Tensor = model(batch.cuda()) * torch.ones(1, device="cuda")
    return mean.sum()


def test_a_model_that_has_trained_on_cuda_is_traced_as_one_that_never_ran() -> None:
    batch = torch.ones(2, 64)
    fresh = trace_model(Model, batch, loss=loss)
    model = Model().cuda()
    torch.autograd.backward(loss(model, batch))
    used = trace_model(model, batch.cuda(), loss=loss)
    assert len(used.traced_peaks) == 8
    assert used.traced_peaks == fresh.traced_peaks


SCRIPT = """
import sys
import torch
from autoconf_launch import runtime

model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6))).cuda()
x = torch.ones(2, 4096, 1024, device="cuda")
loss = lambda model, batch: model(batch).square().mean()
loss(model, x[:1, :1]).backward()
engine = runtime.initialize(model, sys.argv[1], loss_fn=loss)
taken = [] if sys.argv[2] == "roomy" else [torch.empty(1 << 20, device="cuda")]
try:
    while taken:
        taken.append(torch.empty(1 << 20, device="cuda"))
except torch.OutOfMemoryError:
    pass
engine.step(x)
"""


@pytest.mark.parametrize(("room", "grade"), [("roomy", Grade.MEASURED), ("full", Grade.TRACED)])
def test_a_profile_run_is_traced_after_a_backward_pass_on_cuda(
    tmp_path: Path, room: str, grade: Grade
) -> None:
    script, config = tmp_path / "train.py", tmp_path / "config.json"
    script.write_text(textwrap.dedent(SCRIPT))
    config.write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}})
    )
    task = RankTask(mode=Mode.PROFILE, folder=str(tmp_path), attempt="a")
    done = subprocess.run(
        [sys.executable, str(script), str(config), room],
        env={**os.environ, TASK_VARIABLE: task.to_variable()},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads((tmp_path / MODEL_INFO_FILE).read_text())
    spec = decode(ModelSpec, document)
    assert (spec.grade, len(spec.traced_peaks)) == (grade, 8), spec.notes


CHOOSES_GPU = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import torch
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
device = "cuda:0" if torch.cuda.is_available() else "cpu"
print("device", device, flush=True)
model = torch.nn.Linear(4, 4).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 4, device="cuda")).sum().backward()
optimizer.step()
"""


def test_a_script_that_makes_a_gpu_visible_itself_is_traced_on_the_cpu(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHOOSES_GPU)
    found = trace_script(script_command([str(script)]), DEADLINE_S, print).found
    assert (found.fake, found.notes, len(found.peaks)) == (True, (), 6)
