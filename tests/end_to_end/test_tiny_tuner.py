import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "00_tiny_tuner.py"


def test_the_tiny_tuner_runs_as_written_and_prints_its_table() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("z", "global"))]
    assert rows[0][0] == "z1"
    assert rows[-1] == ["global", "7", "203.2", "z2_gas8_tmbspg4"]


def test_the_tiny_tuner_is_about_100_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 125
