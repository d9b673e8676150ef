"""Jobs of an inference search."""

from __future__ import annotations

from autoconf_launch.nemo.inference_search.jobs import inference_job, why_no_job

from .asked import ALONE, ask_for


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
