"""Work of the probe in a timed step, counted; benchmarks/ measure its cost."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "scripts" / "count_calls.py"
MOST_CALLS = 30
"""After a large matrix product each of them costs a microsecond or more: the caches are cold."""


def test_a_timed_step_calls_few_functions_of_the_probe(tmp_path: Path) -> None:
    command = (sys.executable, str(SCRIPT), str(tmp_path))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    calls = json.loads(ended.stdout)
    assert 0 < sum(calls.values()) <= MOST_CALLS, calls
