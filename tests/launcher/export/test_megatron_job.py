"""Rows on unequal nodes as jobs of Megatron-LM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import Candidate, ConfigError, Layout, Precision, Recompute, Workload
from autoconf_launch.launcher.export import JobNode, NodeJob, Optimum, export_optimum, export_row
from autoconf_launch.tuning_spaces import named_model

A100 = JobNode(name="4xA100-SXM-40GB", gpus=4, owned=8)
A10G = JobNode(name="4xA10G-24GB", gpus=4, owned=4)
LAYOUT = Layout(
    data_parallel=4,
    pipeline_parallel=3,
    zero_stage=1,
    micro_batch=2,
    accumulation=4,
    pipeline_split=(30, 9, 9),
)


def row(
    layout: Layout = LAYOUT,
    *,
    model: str = "gpt2-xl",
    nodes: tuple[JobNode, ...] = (A100, A10G, A10G),
) -> Optimum:
    workload = Workload(
        model=named_model(model), sequence_length=512, precision=Precision.FP16, global_batch=32
    )
    return Optimum(
        name="row",
        candidate=Candidate(layout=layout),
        nodes=len(nodes),
        precision=Precision.FP16,
        sequence_length=512,
        job=NodeJob(workload=workload, nodes=nodes),
    )


def files(optimum: Optimum) -> dict[str, str]:
    return dict(export_optimum(optimum, "megatron").files)


@pytest.mark.parametrize(
    ("split", "version", "flags"),
    [
        ((30, 9, 9), "0.9", ("first-pipeline-num-layers 30", "last-pipeline-num-layers 9")),
        ((8, 30, 10), "0.9", ("first-pipeline-num-layers 8", "last-pipeline-num-layers 10")),
        ((16, 16, 16), "0.8", ()),
    ],
)
def test_the_split_says_which_megatron_runs_it(
    split: tuple[int, ...], version: str, flags: tuple[str, ...]
) -> None:
    found = export_optimum(row(replace(LAYOUT, pipeline_split=split)), "megatron")
    head = f"# Runs on Megatron-LM with megatron-core {version} or later.\n"
    assert found.text.startswith(head)
    assert all(f"--decoder-{flag}\n" in found.text for flag in flags)
    assert all(head in text for text in dict(found.files).values())
    assert not found.changed


def test_a_layout_of_all_stages_needs_the_version_that_has_it() -> None:
    layout = replace(LAYOUT, pipeline_parallel=4, pipeline_split=(20, 12, 10, 6))
    found = export_optimum(row(layout, nodes=(A100, A10G, A10G, A10G)), "megatron")
    assert "megatron-core 0.13 or later" in found.text
    assert "'E" + "t" * 20 + "|" + "t" * 12 + "|" in found.text


def test_nodes_have_the_order_of_the_job_and_only_the_gpus_that_are_used() -> None:
    layout = replace(LAYOUT, placement=(4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11))
    found = export_optimum(row(layout, nodes=(A10G, A100, A10G)), "megatron")
    assert not found.changed
    assert "0) # 4xA10G-24GB\n" in dict(found.files)[".torchrun.sh"]
    first, second, *_ = (
        line for line in files(row())[".docker.sh"].splitlines() if "docker run" in line
    )
    assert "--gpus '\"device=0,1,2,3\"' " in first
    assert "--gpus all " in second


def test_a_slurm_job_has_a_component_for_each_run_of_equal_nodes_in_the_order_of_ranks() -> None:
    lines = files(row(nodes=(A10G, A100, A10G)))[".sbatch"].splitlines()
    assert lines.count("#SBATCH hetjob") == 2
    kinds = [line for line in lines if line.startswith("# 1 x ")]
    assert kinds == ["# 1 x 4xA10G-24GB", "# 1 x 4xA100-SXM-40GB", "# 1 x 4xA10G-24GB"]
    assert lines[-1].startswith("srun --het-group=0-2 ")
    one = files(row(nodes=(A10G, A10G, A10G)))[".sbatch"]
    assert "hetjob" not in one
    assert "#SBATCH --nodes=3 " in one


def test_all_scripts_are_valid_shell(tmp_path: Path) -> None:
    t5 = replace(LAYOUT, pipeline_split=(24, 14, 10))
    for optimum in (row(), row(t5, model="fasop-t5")):
        for suffix, text in files(optimum).items():
            path = tmp_path / f"script{suffix}"
            path.write_text(text)
            subprocess.run(["bash", "-n", str(path)], check=True)


def test_a_t5_in_a_pipeline_runs_on_the_fork_of_fasop() -> None:
    layout = replace(LAYOUT, pipeline_split=(24, 14, 10))
    found = export_optimum(row(layout, model="fasop-t5"), "megatron")
    assert "# Runs on FASOP's fork of Megatron-LM" in found.text
    assert "--balance 24-14-10\n" in found.text
    assert "layout" not in found.text
    script = dict(found.files)[".torchrun.sh"]
    assert 'run_inter 1 "$MASTER_ADDR" 4 3 32 2 1 4 3 24-14-10' in script
    assert "PIPELINE_MODEL_PARALLEL_SPLIT_RANK=1." in script


def test_a_row_that_no_megatron_runs_is_refused_and_the_next_one_is_named() -> None:
    uneven = row(replace(LAYOUT, micro_batch_split=(1, 2, 2, 3)))
    with pytest.raises(ConfigError, match=r"our own runtime alone trains it\); --row 2 can be"):
        export_row([uneven, row()], 1, "megatron")
    across = row(replace(LAYOUT, pipeline_split=(26, 12, 10)), model="fasop-t5")
    with pytest.raises(ConfigError, match="at the end of a stage"):
        export_row([across], 1, "megatron")
    again = replace(LAYOUT, pipeline_split=(24, 14, 10), recompute=Recompute.FULL)
    with pytest.raises(ConfigError, match="without recomputation"):
        export_row([row(again, model="fasop-t5")], 1, "megatron")


def test_agents_of_one_and_two_processes_get_ranks_in_the_order_of_the_nodes(
    tmp_path: Path,
) -> None:
    (tmp_path / "pretrain_gpt.py").write_text(
        "import os, pathlib, sys\n"
        "rank, node = os.environ['RANK'], os.environ['GROUP_RANK']\n"
        "words = [node, os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE'], *sys.argv[-1:]]\n"
        "pathlib.Path(__file__).with_name('rank' + rank).write_text(' '.join(words))\n"
    )
    small = tuple(JobNode(name=f"{n}xA10G-24GB", gpus=n, owned=n) for n in (1, 2))
    layout = Layout(
        data_parallel=1, pipeline_parallel=3, accumulation=32, pipeline_split=(8, 2, 2)
    )
    script = tmp_path / "layout.megatron.torchrun.sh"
    script.write_text(files(row(layout, model="gpt2", nodes=small))[".torchrun.sh"])
    command = tmp_path / "torchrun"  # what torch installs under this name
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    command.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "MEGATRON_PATH": str(tmp_path),
    }
    agents = [  # the second node first: its rank, not its start, decides
        subprocess.Popen(["bash", str(script), rank, "--mark"], env=environment, cwd=tmp_path)
        for rank in ("1", "0")
    ]
    assert [agent.wait(timeout=120) for agent in agents] == [0, 0]
    ranks = [(tmp_path / f"rank{rank}").read_text() for rank in range(3)]
    assert ranks == ["0 0 3 --mark", "1 0 3 --mark", "1 1 3 --mark"]
