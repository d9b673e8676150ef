"""``search`` on a real Slurm and over real hosts.

NeMo, pyxis and Base Command are not here: where they are needed, programs stand in for them that
drop a container's flags, log a training's steps, or reach the hosts by ssh.
"""

import csv
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("hydra")
pytest.importorskip("transformers")

from . import namespaces, slurm
from .launching import COMMAND
from .namespaces import Hosts
from .slurm import Slurm

needs_slurm = pytest.mark.skipif(not slurm.IS_INSTALLED, reason=slurm.REASON)
pytestmark = pytest.mark.cluster
TRAIN = "search_config.train_settings"
VALUES = {
    "model_size_in_b": 0.0001,
    "vocab_size": 512,
    "seq_length": 32,
    "num_tokens_in_b": 0.01,
    "global_batch_size": 8,
    "limit_search_runs": 2,
    "max_steps_per_run": 5,
    "num_nodes": 2,
    "max_minutes_per_run": 5,
    "gpus_per_node": 2,
}
SLURM = ("cluster_type=bcm", "cluster.gpus_per_node=null", "cluster.mem=null")
SHARED = (*SLURM, "cluster.exclusive=False", "cluster.partition=gpu")
SRUN = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
cut, kept = words.index("sh"), []
for flag in ("-o", "-e"):
    kept += [flag, words[words.index(flag) + 1]]
os.execv("/usr/bin/srun", ["srun", *kept, *words[cut:]])
"""
"""Drops the flags that pyxis adds to srun."""
NEMO = f"""#!{sys.executable}
import os, sys, time
from importlib import import_module
logs = next(w.partition("=")[2].strip("'") for w in sys.argv if "explicit_log_dir" in w)
if os.environ["SLURM_PROCID"] == "0":
    sys.path.insert(0, {str(Path(__file__).parents[2])!r})
    from tests.nemo_tools.report.logged import log_steps
    from pathlib import Path
    with open(os.environ["SAID"], "a") as file:
        print(logs, file=file)
    log_steps(Path(logs), [9.0, *[0.5 + ("mbs_1_" in logs)] * 6], [5.0, 4.0])
"""
"""Logs steps as NeMo does; a micro-batch of 1 is slower."""
BCPRUN = """#!/bin/sh
# bcprun --nnodes N --npernode 1 --cmd TEXT: the text on each host, with its number
count=$2
shift 5
number=0
for host in $HOSTS; do
  [ $number -lt $count ] || break
  ssh -F "$SSH_CONFIG" $host "export NGC_ARRAY_INDEX=$number OMP_NUM_THREADS=1; $1" &
  number=$((number + 1))
done
wait
"""


def search(
    folder: Path, variables: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_of(folder, *words),
        env=variables,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def command_of(folder: Path, *words: str) -> list[str]:
    return [
        *(*COMMAND, "search", "search_config=gpt3/unknown_size", "run_inference_hp_search=False"),
        f"base_results_dir={folder}",
        *(f"{TRAIN}.{key}={value}" for key, value in VALUES.items()),
        *words,
    ]


def table(folder: Path, nodes: int) -> list[dict[str, str]]:
    name = f"final_results/final_summary_{nodes}nodes.csv"
    with (folder / "gpt3/unknown_size_80gb" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def place(folder: Path, **programs: str) -> Path:
    tools = folder / "tools"
    tools.mkdir()
    for name, text in programs.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tools


@needs_slurm
def test_runs_of_ours_on_slurm_write_the_columns_of_local_ones(
    slurm_cluster: Slurm, tmp_path: Path
) -> None:
    far = search(tmp_path / "far", slurm_cluster.variables, *SHARED, "cluster.train_with=ours")
    assert far.returncode == 0, far.stderr
    near = search(tmp_path / "near", slurm_cluster.variables, "cluster_type=local")
    assert near.returncode == 0, near.stderr
    rows = table(tmp_path / "far", 2)
    assert len(rows) == 2
    assert rows[0].keys() == table(tmp_path / "near", 1)[0].keys()
    assert not slurm_cluster.jobs()


@pytest.fixture
def nemo(slurm_cluster: Slurm, tmp_path: Path) -> dict[str, str]:
    """The environment of a search whose jobs run a stand-in for NeMo."""
    tools = place(tmp_path, srun=SRUN, python3=NEMO)
    (tmp_path / "data").mkdir()
    for end in ("bin", "idx"):
        (tmp_path / f"data/pile_00_text_document.{end}").write_bytes(bytes(30))
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return slurm_cluster.variables | {"PATH": path, "SAID": str(tmp_path / "said")}


def nemo_words(folder: Path) -> tuple[str, ...]:
    return (*SHARED, f"data_dir={folder / 'data'}", "training_container=image")


@needs_slurm
def test_runs_of_nemo_on_slurm_are_read_back_and_not_made_again(
    tmp_path: Path, nemo: dict[str, str]
) -> None:
    results = tmp_path / "my results"
    done = search(results, nemo, *nemo_words(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = table(results, 2)
    assert len(rows) == 2
    assert len((tmp_path / "said").read_text().splitlines()) == 2
    again = search(results, nemo, *nemo_words(tmp_path))
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "said").read_text().splitlines()) == 2
    assert table(results, 2) == rows


@needs_slurm
def test_runs_that_are_only_submitted_are_collected_by_a_last_job(
    slurm_cluster: Slurm, tmp_path: Path, nemo: dict[str, str]
) -> None:
    results = tmp_path / "results"
    done = search(results, nemo, *nemo_words(tmp_path), "--submit-only")
    assert done.returncode == 0, done.stderr
    assert "2 runs are queued" in done.stdout
    assert slurm_cluster.is_idle_within(120)
    rows = table(results, 2)
    assert len(rows) == 2
    (results / "gpt3/unknown_size_80gb/final_results/final_summary_2nodes.csv").unlink()
    by_hand = search(results, nemo, *nemo_words(tmp_path), "--collect")
    assert by_hand.returncode == 0, by_hand.stderr
    assert table(results, 2) == rows


@needs_slurm
def test_a_killed_search_goes_on_with_the_jobs_that_it_left(
    slurm_cluster: Slurm, tmp_path: Path, nemo: dict[str, str]
) -> None:
    slow = place(
        tmp_path / "data",
        python3=NEMO.replace("import os", "import time; time.sleep(8)\nimport os"),
    )
    variables = nemo | {"PATH": f"{slow}{os.pathsep}{nemo['PATH']}"}
    command = command_of(tmp_path, *nemo_words(tmp_path))
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) as process:
        while not slurm_cluster.jobs():
            assert process.poll() is None
            time.sleep(0.2)
        process.kill()
    assert slurm_cluster.jobs()
    done = search(tmp_path, variables, *nemo_words(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "said").read_text().splitlines()) == 2


@needs_slurm
@pytest.mark.parametrize("words", [("cluster.train_with=ours",), ("training_container=image",)])
def test_runs_that_wait_are_said_once_with_the_reason(
    slurm_cluster: Slurm, tmp_path: Path, nemo: dict[str, str], words: tuple[str, ...]
) -> None:
    late = "cluster.sbatch_args=['--begin=now+1hour']"
    command = command_of(tmp_path, *nemo_words(tmp_path)[:-1], late, *words)
    with subprocess.Popen(command, env=nemo, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        lines = (line for line in process.stderr if "Waiting" in line)
        said = next(lines)
        job = slurm_cluster.jobs()[0].split()[0]
        assert said.strip().endswith(
            f"Waiting for hosts: job {job} of Slurm is pending (BeginTime)."
        )
        time.sleep(2)
        process.terminate()
        assert list(lines) == []
    slurm_cluster.run("scancel", "--user", "root")


@needs_slurm
@pytest.mark.parametrize("how", ["NODE_FAIL", "CANCELLED"])
def test_a_run_that_loses_its_nodes_is_made_again_and_counts_as_run(
    slurm_cluster: Slurm, tmp_path: Path, nemo: dict[str, str], how: str
) -> None:
    first = tmp_path / "first"
    hangs = f"""
import os, time
if os.environ["SLURM_PROCID"] == "0":
    try:
        with open({str(first)!r}, "x") as file:
            file.write(os.environ["SLURM_JOB_ID"])
        time.sleep(300)
    except FileExistsError:
        pass
"""
    tools = place(tmp_path / "data", python3=NEMO.replace("import os", hangs + "import os", 1))
    variables = nemo | {"PATH": f"{tools}{os.pathsep}{nemo['PATH']}"}
    once = (*nemo_words(tmp_path), "cluster.sbatch_args=['--no-requeue']")
    with subprocess.Popen(
        command_of(tmp_path, *once), env=variables, stderr=subprocess.PIPE, text=True
    ) as process:
        while not first.exists() or not (job := first.read_text()):
            assert process.poll() is None
            time.sleep(0.2)
        node = slurm_cluster.run("squeue", "-h", "-j", job, "--format=%B").strip()
        if how == "CANCELLED":
            slurm_cluster.run("scancel", job)
        is_lost = how == "NODE_FAIL"
        with slurm_cluster.without_node(node) if is_lost else nullcontext():
            _, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert len(table(tmp_path, 2)) == 2
    assert f"job {job} of Slurm ended as {how}" in said


@pytest.mark.skipif(not namespaces.CAN_RUN, reason=namespaces.REASON)
def test_runs_of_ours_inside_base_command(hosts: Hosts, tmp_path: Path) -> None:
    tools = place(tmp_path, bcprun=BCPRUN)
    variables = hosts.variables | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HOSTS": " ".join(hosts.names),
        "SSH_CONFIG": str(hosts.folder / "ssh_config"),
    }
    words = ("cluster_type=bcp", "cluster.gpus_per_node=null", "cluster.train_with=ours")
    done = search(tmp_path / "results", variables, *words)
    assert done.returncode == 0, done.stderr
    assert len(table(tmp_path / "results", 2)) == 2
    assert hosts.are_idle_within(5)
