"""A package with trackers for tests, installed for as long as a test runs."""

from __future__ import annotations

from pathlib import Path

import pytest

MODULE = '''
import json, os, subprocess, sys, time
from pathlib import Path

class Recorder:
    """Appends what it is told to a file."""
    trouble = None

    def __init__(self, study):
        self.where = study.folder
        self._file = Path(study.folder) / "told.jsonl"
        self._write("made", study.id)

    def log_trial(self, trial): self._write("trial", trial.run)
    def log_best(self, best): self._write("best", best.run)
    def log_choice(self, choice): self._write("choice", choice.run)
    def close(self): self._write("closed", "")

    def _write(self, what, value):
        with self._file.open("a") as file:
            file.write(json.dumps([what, value]) + "\\n")

class HangsWhenMade(Recorder):
    def __init__(self, study): time.sleep(1000)

class HangsAtATrial(Recorder):
    def log_trial(self, trial): time.sleep(1000)

class HangsInTheEnd(Recorder):
    def close(self): time.sleep(1000)

class EndsSlowly(Recorder):
    def close(self):
        time.sleep(3)
        super().close()

class RaisesWhenMade(Recorder):
    def __init__(self, study): raise ValueError("no room here")

class RaisesAtATrial(Recorder):
    def log_trial(self, trial): raise ValueError("no room for this")

class DiesAtATrial(Recorder):
    def log_trial(self, trial): os._exit(3)

class LeavesAProcess(Recorder):
    def __init__(self, study):
        super().__init__(study)
        child = subprocess.Popen(["sleep", "1000"])
        (Path(study.folder) / "pid").write_text(str(child.pid))

class IsNoisy(Recorder):
    def log_trial(self, trial):
        print("not a line of ours", flush=True)
        print(repr(sys.stdin.read()), file=sys.stderr, flush=True)
        super().log_trial(trial)
'''
NAMES = (
    "Recorder",
    "HangsWhenMade",
    "HangsAtATrial",
    "HangsInTheEnd",
    "EndsSlowly",
    "RaisesWhenMade",
    "RaisesAtATrial",
    "DiesAtATrial",
    "LeavesAProcess",
    "IsNoisy",
)


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package; its trackers are named like their classes."""
    folder = tmp_path / "site"
    told = folder / "toy_trackers-1.0.dist-info"
    told.mkdir(parents=True)
    (folder / "toy_trackers.py").write_text(MODULE)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-trackers\nVersion: 1.0\n")
    rows = "".join(f"{name} = toy_trackers:{name}\n" for name in NAMES)
    (told / "entry_points.txt").write_text(f"[autoconf_launch.tracker]\n{rows}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder
