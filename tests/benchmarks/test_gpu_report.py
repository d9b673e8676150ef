"""The page of a GPU's results, from raw files made up here."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ..autotuner.builders import launch, measurement, trial_of
from .conftest import import_benchmark

report = import_benchmark("report", "gpu")
predicted = import_benchmark("predicted", "gpu")
one_gpu = import_benchmark("one_gpu", "gpu")
planned = import_benchmark("planned", "gpu")

LOG = """\
== env starts at 1 s, limit 40 s
== env ended with 0 after 9 s
test_rank.py::test_a FAILED
FAILED test_rank.py::test_a - AssertionError
1 failed, 6 passed in 30.12s
== tests ended with 1 after 31 s
== noise skipped: 3 s left
"""


def row(outcome: str = "measured", **cells: str) -> dict[str, Any]:
    common = {"model": "gpt2-large", "global_batch": "32", "micro_batch": "4"}
    kind = {"checkpointing": "full", "precision": "bf16", "outcome": outcome}
    return {**dict.fromkeys(predicted.COLUMNS, ""), **common, **kind, **cells}


ROWS = [
    row(
        reserved_gib="9.5",
        context_gib="0.5",
        predicted_gib="10.10",
        step_s="1.0",
        predicted_fits="yes",
        predicted_step_s="0.8",
        driver_error="+1.0%",
        time_error="-20.0%",
    ),
    row("out of memory", predicted_fits="no"),
    row("out of memory", predicted_fits="yes"),
]


def results_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "env.txt").write_text(
        "torch: 2.11.0\ngpu: NVIDIA H100 80GB HBM3\nrow of gpus.csv: H100-SXM-80GB\n"
    )
    (folder / "measure.log").write_text(LOG)
    with (folder / "predicted.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, predicted.COLUMNS)
        writer.writeheader()
        writer.writerows(ROWS)
    comparison = one_gpu.Comparison(
        question=planned.Question(model="gpt2-large", gpu=None, global_batch=32),
        first=2,
        seconds=1,
        folder=tmp_path,
        out=folder / "one_gpu.json",
    )
    (folder / "one_gpu.json").write_text(json.dumps(one_gpu.answers(comparison, one_gpu.Seen())))
    return folder


def test_misses_are_named_and_raw_files_stored_beside_the_page(tmp_path: Path) -> None:
    path = report.store([results_folder(tmp_path)], tmp_path / "results")
    text = path.read_text()
    assert path.name == "gpu_h100_sxm_80gb.md"
    assert text.startswith("# H100-SXM-80GB\n")
    name = "| gpt2-large bf16 micro 4 of 32, full recomputation |"
    assert f"{name} 10.00 GiB | 10.10 GiB | +1.0 % | 1.0 s | 0.8 s | -20.0 % **miss** |" in text
    assert f"{name} out of memory | does not fit |" in text
    assert f"{name} out of memory | fits **miss** |" in text
    assert {file.name for file in path.with_suffix("").iterdir()} == set(report.KEPT)


def test_the_page_lists_parts_failed_tests_and_unknown_gpus(tmp_path: Path) -> None:
    text = report.page([results_folder(tmp_path)])
    assert "| tests | ended with 1 after 31 s |" in text
    assert "| noise | skipped: 3 s left |" in text
    assert "FAILED test_rank.py::test_a - AssertionError\n1 failed, 6 passed in 30.12s" in text
    assert report.page([tmp_path]).startswith("# unknown GPU\n")
    assert report.gpu_of("gpu: Some Card\nrow of gpus.csv: none\n") == "Some Card"
    measured = row(reserved_gib="9.5", context_gib="0.5", step_s="1.0", predicted_fits="no")
    (section, _) = report.prediction_sections([measured])
    assert "does not fit **miss**" in section


@pytest.mark.parametrize(
    ("times", "text"), [((1.0, 1.1, 0.9), "10.00 %"), ((1.0,), "not measured")]
)
def test_noise_is_the_spread_between_launches(times: tuple[float, ...], text: str) -> None:
    records = [launch(trial_of(), measurement(step_s)) for step_s in times]
    assert text in report.noise_text(records)
