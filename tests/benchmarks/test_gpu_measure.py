"""The driver of the GPU benchmarks, rehearsed on this machine's CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from .conftest import BENCHMARKS, import_benchmark

report = import_benchmark("report", "gpu")


def measure(folder: Path, **variables: str) -> str:
    """The log of a rehearsal with the tiny model."""
    done = subprocess.run(
        ("bash", str(BENCHMARKS / "gpu" / "measure.sh")),
        env={**os.environ, "OUT": str(folder), "PY": sys.executable, "MODEL": "tiny", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "measure.log").read_text()


def test_parts_that_no_time_is_left_for_are_skipped(tmp_path: Path) -> None:
    log = measure(tmp_path, ONLY="engine|fit", GPU="H100-SXM-80GB", LIMIT="5")
    assert "== engine skipped" in log
    assert "== fit skipped" in log
    assert "== all parts ended" in log


def test_each_part_has_its_exit_code_and_duration_in_the_log(tmp_path: Path) -> None:
    log = measure(tmp_path, ONLY="fit", GPU="H100-SXM-80GB")
    assert re.search(r"== fit ended with [01] after \d+ s", log)  # by the memory of this machine
    assert "GiB" in log


@pytest.mark.slow
def test_a_rehearsal_without_a_gpu_writes_every_file(tmp_path: Path) -> None:
    log = measure(tmp_path, ONLY="env|predicted|one_gpu", GPU="H100-SXM-80GB")
    for part in ("env", "predicted", "one_gpu"):
        assert f"== {part} ended with 0" in log
    document = json.loads((tmp_path / "one_gpu.json").read_text())
    assert document["launched"] > 0
    assert (tmp_path / "predicted.csv").read_text().count("\n") > 1
    with tarfile.open(tmp_path / "raw.tgz") as archive:
        assert "./one_gpu/tune/autotuning_results/journal.jsonl" in archive.getnames()
    page = report.page([tmp_path])
    assert "## Tunes" in page
