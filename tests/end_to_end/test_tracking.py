"""``--report-to`` with the real command: what is wrong is said first, what hangs stops nothing."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import SCRIPT, SMALL, Place

USAGE = 2
_NO_KEY = "cannot be read" if find_spec("wandb") else "pip install 'autoconf-launch[wandb]'"
KEY = "0123456789abcdef" * 2 + "01234567"
HANGING = """
import time
def hang(study): time.sleep(1000)
"""


def install_hanging_tracker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = folder / "hanging-1.0.dist-info"
    told.mkdir(parents=True)
    (folder / "hanging.py").write_text(HANGING)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[autoconf_launch.tracker]\nhanging = hanging:hang\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--report-to=tensorbord",), "did you mean 'tensorboard'?"),
        (("--report-to=wandb,none",), "or just none"),
        (("--report-to=",), "or just none"),
        (("--report-to=wandb", "--wandb-api-key-file=nowhere"), _NO_KEY),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_launched(
    place: Place, flags: tuple[str, ...], says: str
) -> None:
    words = ("--autotuning=tune", *flags, str(SCRIPT), "--config", "config.json")
    code, output = place.refusal(*words)
    assert code == USAGE, output
    assert says in output
    assert len(output.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_tracker_that_hangs_stops_no_tune(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    install_hanging_tracker(place.folder / "site", monkeypatch)
    code, output = place.tune("--tuner-num-trials=1", "--report-to=hanging")
    assert code == 0, output
    assert output.count("autoconf-launch: warning: hanging: it was too slow") == 1
    assert (place.results / "ds_config_optimal.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_a_tune_is_kept_by_wandb_and_its_key_by_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    key = place.folder / "key"
    key.write_text(f"{KEY}\n")
    code, output = place.tune(
        "--tuner-num-trials=1", "--report-to=wandb", f"--wandb-api-key-file={key}"
    )
    assert code == 0, output
    files = [path for path in place.folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == [key]
    logged = (place.results / "tracking/wandb/logged.jsonl").read_text().splitlines()
    assert json.loads(logged[-1])["logged"].startswith("choice train_")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_the_ranks_know_nothing_of_trackers(place: Place) -> None:
    place.write_config({**SMALL, "autotuning": {"enabled": True, "tuner_num_trials": 1}})
    code, output = place.tune("--report-to=tensorboard")
    assert code == 0, output
    command = (place.results / "cmd_optimal.txt").read_text()
    assert "report" not in command
    answer = subprocess.run(
        ["grep", "-rl", "tensorboard", str(place.results / "z0_gas4_tmbspg1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == ""
