"""Data for trackers stays in the trial's folder, or is not sent."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.runtime.locate.hook import BATCH_VARIABLE
from autoconf_launch.runtime.redirect.left_behind import silence

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
    text = "class GeneralTracker:\n    def __init__(self, _blank=False):\n        assert _blank\n"
    (tmp_path / "accelerate" / "tracking.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if "accelerate" in name}
    silence(str(tmp_path / "trial"))
    yield import_module("accelerate.tracking")
    for name in [name for name in sys.modules if "accelerate" in name]:
        del sys.modules[name]
    sys.modules.update(before)


def test_an_accelerator_finds_one_tracker_whatever_it_asks_for(trackers: Any) -> None:
    (found,) = trackers.filter_trackers(["wandb", object()], logging_dir="runs")
    assert isinstance(found, trackers.GeneralTracker)
    assert found.name == "wandb"


def test_a_tracker_takes_all_it_is_told_and_does_nothing(trackers: Any) -> None:
    (found,) = trackers.filter_trackers("all")
    found.tracker.summary["loss"] = found.add_text("words", step=1)
    assert (found.start(), found.log({"loss": 1.0}, step=1), found.finish()) == (None, None, None)


@pytest.mark.parametrize("nothing", [None, [], ""])
def test_an_accelerator_that_asks_for_no_tracker_finds_none(trackers: Any, nothing: Any) -> None:
    assert trackers.filter_trackers(nothing) == []


@pytest.mark.slow
def test_an_accelerator_gives_its_tracker_by_name(trackers: Any) -> None:
    for name in [name for name in sys.modules if name.startswith("accelerate")]:
        del sys.modules[name]
    sys.path.remove(str(Path(trackers.__file__).parents[1]))
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, log_with="all")
    accelerator.init_trackers("run")
    accelerator.log({"loss": 1.0})
    accelerator.get_tracker("wandb", unwrap=True).watch("anything")


def test_event_files_stand_in_the_trials_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
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
