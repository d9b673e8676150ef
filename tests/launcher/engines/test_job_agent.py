"""A host whose agent says what no agent says counts as lost, and nothing more happens."""

from __future__ import annotations

import json

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.engines import FolderLine, HostsJob
from autoconf_launch.launcher.engines.hosts_job import JobAgent

from .conftest import Lab
from .test_folder_line import Engine

HERE: dict[str, object] = {
    "address": "", "launcher_address": None, "port": 1, "unix_s": 0.0, "cores": 1,
    "memory_bytes": 1, "gpus": [], "versions": {},
}  # fmt: skip
REPORT: dict[str, object] = {"codes": [0], "exit_unix_s": [1.0], "terminated_unix_s": None}


@pytest.mark.parametrize(
    "said",
    [
        {"here": 7},
        {"here": {**HERE, "unix_s": "\x1b[2J"}},
        {"here": HERE | {"port": "22; rm x"}},
        {"stream": 1},
        {"stream": [], "data": ""},
        {"file": "result.json", "data": "é"},
        {"report": {}},
        {"report": REPORT | {"codes": [0, 0]}},
        {"report": REPORT | {"codes": ["0"]}},
        {"report": REPORT, "printed_bytes": ["x"], "and": "sound"},
    ],
)
def test_what_no_agent_says(lab: Lab, said: dict[str, object]) -> None:
    line = FolderLine("far", lab.folder, 0, Engine(lab.folder))
    plan = lab.plan("", ranks=1)
    job = HostsJob(plan, (JobAgent(0, line, plan.ranks),), {})
    noise = f"[1]\n{'[' * 100_000}\n\nnull\n7\n"
    (lab.folder / "0.up").write_text(noise + json.dumps(said) + "\n")
    end = job.look()
    assert end is not None
    if "and" in said:
        assert end.exit_code == 0
        return
    assert end.exit_code == 137
    assert end.lost_hosts == ("far",)
    assert isinstance(end.outcome, FailedTrial)
    failure = end.outcome.failure
    assert failure.kind is FailureKind.NODE_LOST
    assert failure.detail.startswith("host far says what no agent says (")
    assert "\x1b" not in failure.detail
