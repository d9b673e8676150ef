"""``doctor`` on this machine."""

import json
import subprocess
import sys
from pathlib import Path


def test_two_processes_of_this_machine_are_measured_in_seconds(tmp_path: Path) -> None:
    done = subprocess.run(
        (
            *(sys.executable, "-m", "autoconf_launch.launcher.cli"),
            *("doctor", "--num_gpus", "2", "--json"),
        ),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (0, []), done.stderr
    assert len(found["hosts"]) == 2
    assert all(slot["flops_per_s"] > 1e8 and slot["sees_folder"] for slot in found["hosts"])
    assert found["links"] == []
    assert list(tmp_path.iterdir()) == []
