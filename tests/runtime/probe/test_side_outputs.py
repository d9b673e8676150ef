"""What a trial would tell trackers stays in the trial's folder, or is not told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoconf_launch.launcher.scripts.probe_environment import INJECTED
from autoconf_launch.runtime.probing.loader_batch import BATCH_VARIABLE
from autoconf_launch.runtime.probing.side_outputs import silence

LOADS = """
import torch
from torch.utils.data import DataLoader
print([len(batch) for batch in DataLoader(torch.zeros(6), batch_size=2)])
"""


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """``accelerate.tracking``, imported after the probe began to listen."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "__init__.py").touch()
    text = "def filter_trackers(log_with, logging_dir=None):\n    return log_with\n"
    (tmp_path / "accelerate" / "tracking.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if "accelerate" in name}
    silence(str(tmp_path / "trial"))
    yield import_module("accelerate.tracking")
    for name in [name for name in sys.modules if "accelerate" in name]:
        del sys.modules[name]
    sys.modules.update(before)


def test_an_accelerator_finds_no_tracker(trackers: Any) -> None:
    assert trackers.filter_trackers(["wandb"], logging_dir="runs") == []


def test_event_files_stand_in_the_trials_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="it writes the event files")
    from torch.utils.tensorboard import writer

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(writer.FileWriter, "__init__", writer.FileWriter.__init__)
    silence(str(tmp_path / "trial"))
    written: Any = writer.SummaryWriter(str(tmp_path / "runs"))
    written.add_scalar("loss", 1.0, 1)
    written.close()
    assert not (tmp_path / "runs").exists()
    assert len(list((tmp_path / "trial" / "tensorboard").glob("events*"))) == 1


def test_a_batch_is_set_without_a_probe_in_the_training() -> None:
    environment = {**os.environ, "PYTHONPATH": str(INJECTED), BATCH_VARIABLE: "3"}
    ended = subprocess.run(
        (sys.executable, "-c", LOADS), check=True, env=environment, capture_output=True, text=True
    )
    assert ended.stdout == "[3, 3]\n"
