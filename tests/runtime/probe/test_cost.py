"""Work of the probe in a timed step, counted; benchmarks/ measure its cost."""

import json
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent / "scripts" / "count_calls.py"
MOST_CALLS = 30
"""After a large matrix product each of them costs a microsecond or more: the caches are cold."""


def test_a_timed_step_calls_few_functions_of_the_probe(launch: Any, tmp_path: Path) -> None:
    ended = launch(SCRIPT, str(tmp_path))
    assert ended.exit_codes == (0,), ended.errors
    calls = json.loads(ended.outputs[0])
    assert 0 < sum(calls.values()) <= MOST_CALLS, calls
