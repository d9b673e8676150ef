"""Jobs of an inference search, and texts that NVIDIA's writer gives (auto_configurator, 24.12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autoconf_launch.nemo.inference_search.jobs import inference_job, why_no_job
from autoconf_launch.nemo.search import ClusterSettings
from autoconf_launch.nemo.search.jobs import SlurmJob, container_flags, sbatch_text

from .asked import ALONE, ask_for

ORACLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "expected_slurm_cli_inference.json").read_text()
)


def test_a_job_after_others_is_written_as_nvidia_s() -> None:
    flags = container_flags("IMG", ["/a"], ["--no-container-mount-home"], "/l/%j")
    cluster = ClusterSettings(partition="luna", account="acct", mem="0", exclusive=True)
    job = SlurmJob(
        name="nemo_megatron_autoconfig:latency_measure",
        command="python3 a.py x=1",
        nodes=1,
        tasks_per_node=1,
        cluster=cluster,
        flags=flags,
        time="10:00",
        dependency=(101, 102),
    )
    assert sbatch_text(job) == ORACLE["slurm_throughput_measure_example"]


def test_a_job_of_several_commands_with_all_options_is_written_as_nvidia_s() -> None:
    cluster = ClusterSettings(
        exclusive=True,
        partition="batch",
        gpus_per_task=1,
        gpus_per_node=8,
        overcommit=True,
        exclude=("n1", "n2"),
        comment="FasterTransformer job",
        nodelist="n[3-4]",
    )
    job = SlurmJob(
        name="j",
        command="c1",
        further=("c2",),
        nodes=2,
        tasks=16,
        tasks_per_node=8,
        cluster=cluster,
        flags="",
        time="0:30:00",
        dependency="singleton",
        output="/o/log_%j.out",
    )
    assert sbatch_text(job) == ORACLE["slurm_all_options_example"]


def test_a_vllm_point_is_one_task_of_two_commands() -> None:
    prepared = ask_for("search_config=gpt3/5b", "engine=vllm", ALONE)
    search = prepared.searches[0]
    point = next(one for one in search.points if one.name == "gpt3_5b_tp2_pp1_bs4")
    text = inference_job(prepared, search, point)
    assert "#SBATCH --ntasks-per-node=1\n" in text
    assert text.count("vllm bench latency") == text.count("--tensor-parallel-size 2") == 2
    assert "--output-len 20" in text
    assert "--output-len 1 " in text


def test_a_native_point_has_a_task_for_each_rank() -> None:
    prepared = ask_for("search_config=gpt3/5b", "engine=native", ALONE)
    search = prepared.searches[0]
    point = next(one for one in search.points if one.name == "gpt3_5b_tp2_pp2_bs4")
    text = inference_job(prepared, search, point)
    assert "#SBATCH --ntasks-per-node=4\n" in text
    assert "RANK=$SLURM_PROCID" in text
    assert "-m autoconf_launch.runtime.generation" in text


def test_vllm_over_several_nodes_is_refused_with_the_reason() -> None:
    prepared = ask_for("search_config=gpt3/20b", "engine=vllm", "grid=nemo", ALONE)
    whys = {
        one.name: why_no_job(prepared, one)
        for one in prepared.searches[0].points
        if one.layout.pipeline_parallel == 2
    }
    assert len(whys) == 7
    assert all("over 2 nodes needs a Ray cluster" in why for why in whys.values())
