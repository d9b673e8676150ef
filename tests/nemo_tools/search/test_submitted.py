"""``--submit-only``: jobs of both halves are queued, and one last job collects their results."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.inference_search.command import search

SBATCH = """#!/bin/sh
[ -e "$JOBS" ] && [ "$(wc -l < "$JOBS")" -ge "$MOST" ] && { echo no room >&2; exit 1; }
echo "$*" >> "$JOBS"
wc -l < "$JOBS" | tr -d ' '
"""
INFERENCE = "search_config.inference_settings"
ALONE = "run_training_hp_search=False"
WORDS = (
    *("--submit-only", "search_config=gpt3/5b", "engine=native", "training_container=image"),
    *(f"{INFERENCE}.run.{name}_parallel_sizes=[1]" for name in ("tensor", "pipeline")),
    f"{INFERENCE}.benchmark.batch_sizes=[1,2]",
    "search_config.train_settings.limit_search_runs=3",
)
FOLDER = Path("results/gpt3/5b_80gb")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists the words of each job; stands in for a Slurm that starts none of them."""
    programs = {"sbatch": SBATCH, "scancel": '#!/bin/sh\necho "$*" >> "$JOBS.cancelled"\n'}
    for name, text in {**programs, "sinfo": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "data").mkdir()
    for end in ("bin", "idx"):
        (tmp_path / f"data/pile.{end}").write_bytes(bytes(30))
    jobs = tmp_path / "jobs"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(jobs))
    monkeypatch.setenv("MOST", "99")
    monkeypatch.chdir(tmp_path)
    return jobs


def submit(*words: str) -> str:
    return "\n".join(search((*WORDS, "data_dir=data", "base_results_dir=results", *words)))


def measure(point: str) -> None:
    figures = {"latencies": [0.5, 0.5], "prefill": 0.1, "decode": 0.4}
    (FOLDER / "inference" / point / "latency.json").write_text(json.dumps(figures))


def test_points_of_an_inference_search_are_collected_by_a_last_job(slurm: Path) -> None:
    out = submit(ALONE)
    *points, last = slurm.read_text().splitlines()
    assert [Path(one.split()[-1]).parent.name for one in points] == [
        "gpt3_5b_tp1_pp1_bs2",
        "gpt3_5b_tp1_pp1_bs1",
    ]
    assert "--dependency=afterany:1:2" in last
    summary = FOLDER / "inference" / "final_summary"
    assert out == f"2 runs are queued; job 3 writes {summary.absolute()} last."
    for point in ("gpt3_5b_tp1_pp1_bs1", "gpt3_5b_tp1_pp1_bs2"):
        measure(point)
    script = FOLDER / "inference" / "collect.sh"
    assert last.split()[-1] == str(script.absolute())
    subprocess.run(("sh", str(script)), check=True, timeout=300)
    with (summary / "final_output.csv").open(newline="") as file:
        assert [row["Latency [ms]"] for row in csv.DictReader(file)] == ["500.0", "500.0"]


def test_both_halves_have_one_last_job(slurm: Path) -> None:
    found = json.loads(submit("--json"))
    assert (found["queued"], found["collected_by"]) == (5, 6)
    assert [Path(one).name for one in found["results"]] == ["final_results", "final_summary"]
    last = slurm.read_text().splitlines()[-1]
    assert "--dependency=afterany:1:2:3:4:5" in last
    assert "search --collect" in (FOLDER / "jobs" / "collect.sh").read_text()


def test_a_refused_job_leaves_none_of_either_half(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOST", "4")
    with pytest.raises(ConfigError, match="Slurm refuses the job: no room"):
        submit()
    assert Path(f"{slurm}.cancelled").read_text() == "--quiet 1 2 3 4\n"


def test_a_measured_point_is_queued_again_only_afresh(slurm: Path) -> None:
    submit(ALONE)
    measure("gpt3_5b_tp1_pp1_bs2")
    assert submit(ALONE).startswith("1 run is queued; job 5 ")
    assert submit(ALONE, "--fresh").startswith("2 runs are queued; job 8 ")


@pytest.mark.parametrize("words", [("cluster_type=bcp",), ()])
def test_without_slurm_nothing_is_queued(
    words: tuple[str, ...], slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not words:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(ConfigError, match="--submit-only needs cluster_type=bcm and a Slurm"):
        submit(ALONE, *words)
    assert not slurm.exists()
