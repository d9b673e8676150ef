import sys
from pathlib import Path

import pytest

from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.launcher.backends.local import LocalBackend
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.results.journal import Journal
from autoconf_launch.launcher.tuning import profile_run


def test_a_long_profile_run_says_once_where_its_output_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_run, "_SLOW_S", 0.2)
    monkeypatch.setattr(profile_run, "HEARTBEAT_S", 0.1)
    argv = (sys.executable, "-c", "import time; time.sleep(1.5)")
    rank = RankPlan(rank=0, local_rank=0, argv=argv, environment=())
    folder = str(tmp_path)
    plan = LaunchPlan(name="profile", ranks=(rank,), working_directory=folder, folder=folder)
    heard: list[Event] = []
    with Journal(tmp_path / "journal.jsonl") as journal, pytest.raises(NothingFeasibleError):
        profile_run.run_profile(
            plan, LocalBackend(), journal=journal, timeout_s=60.0, listener=heard.append
        )
    text = f"The profile run has taken 0.2 s so far; its output is in {tmp_path}."
    assert heard == [Note(text=text)]
