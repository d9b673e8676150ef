"""Real processes: what is said of scripts that never come to a forward pass."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.launcher.first_forward.command import script_command
from autoconf_launch.launcher.first_forward.script import first_forward

IGNORES_SIGNALS = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
open("began", "w")
time.sleep(600)
"""
TAKES_ALL = "kept = []\nwhile True: kept.append(bytearray(1 << 28))\n"
LARGE = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Linear(1 << 14, 1 << 14, bias=False) for _ in range(64)]).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(2, 1 << 14, dtype=torch.half, device="cuda")).float().sum()
loss.backward()
optimizer.step()
"""
LARGE_TENSOR = """
import torch
model = torch.nn.Linear(64, 8).cuda()
kept = torch.zeros(1 << 40, 64, dtype=torch.uint8, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randint(0, len(kept), (16,), device="cuda")
kept[3] = 1
model(kept[rows].float() / 255).square().mean().backward()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def why(text: str, *, time_limit_s: float = 100.0) -> NothingFeasibleError:
    Path("train.py").write_text(text)
    command = script_command([sys.executable, "train.py"])
    with pytest.raises(NothingFeasibleError) as caught:
        first_forward(command, time_limit_s, print)
    return caught.value


COUNTS = "open('starts', 'a').write('one')\n"


@pytest.mark.parametrize(
    ("text", "why_not"),
    [
        ("print('only looking')", "no process of the script imported torch; give the command"),
        (
            "import torch\nprint('only looking')\n",
            "it ended by itself, and no module with trainable weights",
        ),
    ],
    ids=["without torch", "without a pass"],
)
def test_a_script_that_does_not_train_is_not_tried_twice(text: str, why_not: str) -> None:
    error = why(f"{COUNTS}{text}")
    assert f"train.py does not train: {why_not}" in str(error)
    assert (Path("starts").read_text(), error.log_tail) == ("one", ("only looking",))


def test_time_is_limited_whatever_the_script_does_with_signals() -> None:
    started_s = time.monotonic()
    assert "made no forward pass with gradients within 1 s" in str(
        why(IGNORES_SIGNALS, time_limit_s=1.0)
    )
    assert time.monotonic() - started_s < 30
    assert Path("began").exists()


def test_memory_is_limited_before_the_machine_s_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoconf_launch.launcher.first_forward.script._MEMORY_SHARE", 0.1)
    assert why(TAKES_ALL).log_tail[-1] == "MemoryError"


def test_a_tensor_larger_than_the_machine_is_counted_without_being_allocated() -> None:
    Path("train.py").write_text(LARGE_TENSOR)
    found = first_forward(script_command([sys.executable, "train.py"]), 100.0, print)
    (kept,) = found.bystanders
    assert (kept.name, kept.size_bytes, found.micro_batch) == ("tensors", 64 << 40, 16)


@pytest.mark.slow
def test_a_model_larger_than_the_machine_is_gone_through_with_fake_weights() -> None:
    Path("train.py").write_text(LARGE)
    found = first_forward(script_command([sys.executable, "train.py"]), 500.0, print)
    assert found.model.parameters == 64 << 28
    assert (found.fake, found.model.parameter_bytes_each) == (True, 2.0)
