"""A search for a cluster: its files, run by a shell with stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("hydra")

from ...nemo_tools.report.logged import log_steps
from .verb import Run

TRAIN = "search_config.train_settings"
HOSTILE = "a b'; touch pwned; $(touch pwned)`touch pwned`\"|\\"
STAND_IN = f"""#!{sys.executable}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open(os.environ["SAID"], "a") as file:
    print(json.dumps([name, *sys.argv[1:]]), file=file)
last = sys.argv[-1]
runs = {{"sbatch": ["bash", last], "srun": sys.argv[-3:], "bcprun": ["sh", "-c", last]}}
if name in runs:
    sys.exit(os.spawnvp(os.P_WAIT, runs[name][0], runs[name]))
sys.exit("fails" in os.environ.get("MODE", ""))
"""
"""Writes down what it was given, then runs what Slurm or Base Command would."""


def data_folder(where: Path) -> Path:
    where.mkdir(parents=True)
    for name, size in (("pile_00_text_document", 30), ("pile_01_text_document", 10)):
        (where / f"{name}.bin").write_bytes(bytes(size))
        (where / f"{name}.idx").write_bytes(b"index")
    return where


def words(folder: Path, *more: str, choice: str = "gpt3/5b") -> tuple[str, ...]:
    return (
        *(f"search_config={choice}", "run_inference_hp_search=False", "grid=nemo"),
        *(f"base_results_dir={folder / 'results'}", f"{TRAIN}.limit_search_runs=3"),
        *(f"data_dir={data_folder(folder / 'data')}", *more),
    )


def ran(script: Path, folder: Path, **variables: str) -> tuple[int, list[list[str]]]:
    """The exit code of the script, and every command that it called, in order."""
    tools, said = folder / "tools", folder / "said.jsonl"
    tools.mkdir(exist_ok=True)
    for name in ("sbatch", "srun", "bcprun", "python3"):
        (tools / name).write_text(STAND_IN)
        (tools / name).chmod(0o755)
    said.write_text("")
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "SAID": str(said), **variables}
    done = subprocess.run(["bash", str(script)], cwd=folder, env=environment, check=False)
    return done.returncode, [json.loads(line) for line in said.read_text().splitlines()]


LOGS = "results/gpt3/5b_80gb"


def test_a_slurm_search_writes_configurations_and_jobs_that_train_them(
    search: Run, tmp_path: Path
) -> None:
    done = search(*words(tmp_path))
    assert done.code == 0, done.err
    assert "3 candidate configurations" in done.out
    paths = [Path(word) for word in done.out.split() if word.startswith("/")]
    script = tmp_path / LOGS / "submit_all.sh"
    assert script in paths
    assert all(path.exists() for path in paths)
    configs = sorted((tmp_path / LOGS / "candidate_configs").glob("*.yaml"))
    jobs = sorted((tmp_path / LOGS / "jobs").iterdir())
    assert [path.stem for path in configs] == [path.stem for path in jobs]
    for path in (tmp_path / LOGS).rglob("*.yaml"):
        assert yaml.safe_load(path.read_text())["model"]["data"]["data_prefix"] == [
            *(0.75, str(tmp_path / "data/pile_00_text_document")),
            *(0.25, str(tmp_path / "data/pile_01_text_document")),
        ]
    code, calls = ran(script, tmp_path)
    assert code == 0
    assert [call[0] for call in calls] == ["sbatch", "srun", "python3"] * 3
    trained = {call[4] for call in calls if call[0] == "python3"}
    assert trained == {f"--config-name={path.name}" for path in configs}
    for call in calls[1::3]:
        assert Path(call[call.index("-o") + 1]).parent.is_dir()
    for job in jobs:
        job.write_text("exit 1\n")
    code, calls = ran(script, tmp_path)
    assert (code, len(calls)) == (1, 1), "submission ends at the first job that Slurm refuses"


def test_base_command_runs_one_job_after_the_other_and_goes_on_after_a_failure(
    search: Run, tmp_path: Path
) -> None:
    assert search(*words(tmp_path, "cluster_type=bcp")).code == 0
    code, calls = ran(tmp_path / LOGS / "submit_all.sh", tmp_path, MODE="fails")
    assert code == 0
    assert [call[0] for call in calls] == ["bcprun", "python3"] * 3


def test_no_value_of_a_user_is_run_by_a_shell(search: Run, tmp_path: Path) -> None:
    folder = tmp_path / "it's $(touch pwned)"
    quoted = HOSTILE.replace("\\", "\\\\").replace("'", "\\'")
    keys = ("partition", "account", "comment", "job_name_prefix", "exclude", "nodelist")
    values = (f"cluster.{key}='{quoted}'" for key in keys)
    folder.mkdir()
    arguments = [
        word.replace(str(folder), "${oc.env:HOSTILE_FOLDER}") for word in words(folder, *values)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTILE_FOLDER", str(folder))
        flags = "cluster.srun_args=['--chdir /tmp;touch pwned','--x $(touch pwned)']"
        done = search(*arguments, flags, "training_container='image;touch pwned'")
    assert done.code == 0, done.err
    logs = folder / "results/gpt3/5b_80gb"
    code, calls = ran(logs / "submit_all.sh", tmp_path)
    assert code == 0
    assert [call[0] for call in calls] == ["sbatch", "srun", "python3"] * 3
    assert "image;touch pwned" in calls[1]
    assert f"--config-path={logs / 'candidate_configs'}" in calls[2]
    assert not list(tmp_path.rglob("pwned"))
    options = next((logs / "jobs").iterdir()).read_text().splitlines()
    (partition,) = (line for line in options if line.startswith("#SBATCH -p "))
    assert shlex.split(partition.removeprefix("#SBATCH -p ")) == [HOSTILE]


def test_a_value_of_two_lines_is_refused(
    search: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_LINES", "a\n#SBATCH --uid=0")
    done = search(*words(tmp_path, "cluster.comment=${oc.env:TWO_LINES}"))
    assert (done.code, done.is_one_line) == (2, True), done.err
    assert "must be one printable line" in done.err
    assert not list(tmp_path.rglob("*.sh"))


def test_a_second_search_leaves_no_file_of_the_first(search: Run, tmp_path: Path) -> None:
    first = words(tmp_path)
    for one in search(*first, "--json").document["candidates"]:
        assert Path(one["config"]).is_file()
        assert Path(one["job"]).is_file()
        assert Path(one["run_folder"]).is_dir()
    assert search(*first, f"{TRAIN}.limit_search_runs=1").code == 0
    for name in ("candidate_configs", "jobs"):
        assert len(list((tmp_path / LOGS / name).iterdir())) == 1


def test_a_dry_run_is_a_summary_with_one_job_and_writes_nothing(
    search: Run, tmp_path: Path
) -> None:
    done = search(*words(tmp_path), "--dry-run")
    assert done.out.count("#SBATCH --nodes=16") == 1
    assert done.out.endswith("Nothing was launched or written (--dry-run).\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_candidate_of_nemo_2_is_a_script_with_its_layout_its_limits_and_its_data(
    search: Run, tmp_path: Path
) -> None:
    sizes = (f"{TRAIN}.num_nodes=2", f"{TRAIN}.tensor_parallel_sizes=[4]")
    more = ("grid=planner", *sizes, f"{TRAIN}.act_ckpt_layers=[2]")
    done = search(*words(tmp_path, *more, choice="gemma/unknown_size"))
    assert done.code == 0, done.err
    logs = tmp_path / "results/gemma/unknown_size_80gb"
    for script in (logs / "candidate_configs").glob("*.py"):
        text = script.read_text()
        compile(text, str(script), "exec")
        for said in (
            "tensor_model_parallel_size=4",
            'recompute_granularity="full"',
            "recompute_num_layers=2",
            "max_steps=50",
            "num_nodes=2",
            f'paths=[0.75, "{tmp_path}/data/pile_00_text_document"',
            f'dir="{logs}/training_logs/{script.stem}"',
            "run.Config(\n            TimingCallback",
            "recipe.log.ckpt.save_last = False",
        ):
            assert said in text, (said, text)
    code, calls = ran(logs / "submit_all.sh", tmp_path)
    assert code == 0
    assert all(Path(call[-1]).is_file() for call in calls if call[0] == "python3")


def test_both_halves_end_in_their_recommendations(search: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    both = [word for word in words(tmp_path, "engine=vllm") if "run_inference" not in word]
    assert search(*both).code == 0
    logs = tmp_path / "results/gpt3/5b_80gb"
    first, *_ = sorted(path.stem for path in (logs / "candidate_configs").iterdir())
    log_steps(logs / "training_logs" / first / "results", [9.0, *[2.0] * 40])
    figures = json.dumps({"latencies": [0.5, 0.5]})
    (logs / "inference/gpt3_5b_tp1_pp1_bs4/latency.json").write_text(figures)
    done = search(*both, "--collect")
    assert done.code == 0, done.err
    training, inference = done.out.split("Inference of gpt3_5b with engine vllm")
    assert f"Optimal config: {first}" in training
    assert "Recommended: gpt3_5b_tp1_pp1_bs4" in inference
