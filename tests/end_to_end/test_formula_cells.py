"""Texts that a spreadsheet would compute, planted in each table that a user gets as CSV."""

from __future__ import annotations

import ast
import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.sizing import Family
from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.report import finished_row, trials_csv
from autoconf_launch.nemo.report import (
    NEMO1_FAILED,
    NEMO1_SUMMARY,
    NEMO2_FAILED,
    NEMO2_SUMMARY,
    failed_csv,
    final_csv,
    pareto_csv,
    summary_csv,
)

from ..launcher.report.fixed import RECORDS, write_folder
from ..nemo_tools.inference_search.test_results import RUNS
from ..nemo_tools.report.found import GPT_5B, outcome, run

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
THE_WRITER = "launcher/report/cells.py"
BY_ITSELF = re.compile(r"csv\.(w|DictW)riter|from csv import .*|.*\.(to_csv|savetxt)")
PLANT = "=cmd()"
CRASH = Failure(kind=FailureKind.CRASHED, detail=PLANT)
WORK = ("--model=llama3.1-8b", "--seq=8k", "--global-batch=64")


def assert_harmless(text: str, delimiter: str = ",") -> None:
    """The plant is there, and no cell begins with it."""
    cells = [cell for row in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in row]
    planted = [cell for cell in cells if "cmd" in cell]
    assert planted
    assert [cell for cell in planted if cell.lstrip()[0] in "=+-@"] == []


def written_csv(path: Path) -> list[str]:
    text = path.read_text()
    used = ast.walk(ast.parse(text)) if re.search("csv|savetxt", text) else ()
    words = [
        ast.unparse(node) for node in used if isinstance(node, (ast.Attribute, ast.ImportFrom))
    ]
    return [word for word in words if BY_ITSELF.fullmatch(word)]


def test_one_function_alone_writes_csv() -> None:
    modules = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in modules if written_csv(path)}
    assert found == {THE_WRITER}
    assert written_csv(ROOT / THE_WRITER) == ["csv.writer"]


def test_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed = replace(RECORDS[-1], outcome=FailedTrial(failure=CRASH))
    assert_harmless(trials_csv([finished_row(crashed)]))  # trials.csv
    folder = write_folder(tmp_path / "results", (*RECORDS[:-1], crashed))
    for flags in ((), ("--follow",)):
        assert main(["show", str(folder), "--format=csv", *flags]) == 0
        assert_harmless(capsys.readouterr().out)


def test_plans_of_several_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{PLANT}.yaml").write_text("nodes:\n- {gpu: A100-SXM-80GB, gpus: 8}\n")
    clusters = ("--cluster=8xH100", f"--cluster={PLANT}.yaml")
    assert main(["plan", *WORK, *clusters, "--csv=rows.csv"]) == 0
    assert_harmless(Path("rows.csv").read_text())


def test_predictions_beside_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = ROOT / "benchmarks" / "ground_truth" / "torchtitan.csv"
    shutil.copy(source, f"{PLANT}.csv")
    assert main(["validate", f"{PLANT}.csv", "--csv=rows.csv"]) == 0
    assert_harmless(Path("rows.csv").read_text())


def test_runs_of_a_search() -> None:
    runs = run("a", failure=CRASH), run("+cmd", 5.0)
    named = outcome(*runs, shape=replace(GPT_5B, family=Family(PLANT)))
    for columns in (NEMO1_FAILED, NEMO2_FAILED):
        assert_harmless(failed_csv(named, columns))
    for columns in (NEMO1_SUMMARY, NEMO2_SUMMARY):
        assert_harmless(summary_csv(named, columns))


def test_runs_of_an_inference_search() -> None:
    named = [replace(one, point=replace(one.point, name="+cmd()")) for one in RUNS]
    for write in (final_csv, pareto_csv):
        assert_harmless(write(named))
