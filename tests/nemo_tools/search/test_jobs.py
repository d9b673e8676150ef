from __future__ import annotations

import shlex

import pytest

pytest.importorskip("hydra")

from autoconf_launch.nemo.search.jobs import job_text, training_command

from .asked import ask_for, train


def first_job(*overrides: str) -> str:
    found = ask_for(*overrides)
    return job_text(found, found.found.candidates[0])


@pytest.mark.parametrize(
    ("choice", "script"),
    [
        ("gpt3/5b", "megatron_gpt_pretraining.py"),
        ("llama/llama3_8b", "megatron_gpt_pretraining.py"),
        ("mt5/0.17b", "megatron_t5_pretraining.py"),
        ("bert/4b", "megatron_bert_pretraining.py"),
    ],
)
def test_each_family_has_nemo_s_own_script(choice: str, script: str) -> None:
    assert script in first_job(f"search_config={choice}", "grid=nemo")


def test_families_of_nemo_2_alone_run_a_script_of_their_recipe() -> None:
    found = ask_for("search_config=gemma/unknown_size", "base_results_dir=/r")
    name = found.found.candidates[0].name
    command = training_command(found, found.found.candidates[0])
    folder = "/r/gemma/unknown_size_80gb/candidate_configs"
    assert command == f"python3 -u {folder}/{name}.py"


def test_a_job_reads_the_candidate_s_file_and_has_a_folder_of_its_own() -> None:
    found = ask_for("search_config=gpt3/5b", "grid=nemo", "base_results_dir=/r", "data_dir=/d")
    name = found.found.candidates[0].name
    text = first_job("search_config=gpt3/5b", "grid=nemo", "base_results_dir=/r", "data_dir=/d")
    assert "--config-path=/r/gpt3/5b_80gb/candidate_configs" in text
    assert f"--config-name={name}.yaml ++data_dir=/d" in text
    assert f"-o /r/gpt3/5b_80gb/training_logs/{name}/log_%j.log" in text


def test_the_key_of_wandb_is_read_from_its_file_inside_the_job() -> None:
    key = "wandb.api_key_file=/keys/w b"
    text = first_job("search_config=gpt3/5b", "grid=nemo", "wandb.enable=True", key)
    assert "sh -c 'WANDB_API_KEY=\"$(head -n 1 " in text
    assert "/keys/w b:/keys/w b" in text
    assert "WANDB" not in first_job("search_config=gpt3/5b", "grid=nemo", key)


def test_tasks_and_nodes_both_have_their_gpus_as_nvidia_writes_it() -> None:
    text = first_job("search_config=gpt3/5b", "grid=nemo", "cluster.gpus_per_task=1")
    assert "#SBATCH --gpus-per-task=1\n#SBATCH --gpus-per-node=8\n" in text


def test_a_node_s_gpus_can_be_left_out() -> None:
    text = first_job("search_config=gpt3/5b", "grid=nemo", "cluster.gpus_per_node=null")
    assert "--gpus-per-node" not in text
    assert "#SBATCH --ntasks-per-node=8" in text


def test_logs_that_are_not_below_the_results_are_mounted_too() -> None:
    text = first_job("search_config=gpt3/5b", "grid=nemo", *train(logs="/elsewhere/logs"))
    assert ",/elsewhere/logs:/elsewhere/logs" in text


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/a b", "++data_dir='/a b'"),
        ("/it's", r"++data_dir='/it\'s'"),
        ("/a\\\\", "++data_dir='/a\\\\'"),
    ],
)
def test_a_folder_s_name_is_quoted_for_hydra_too(folder: str, said: str) -> None:
    words = ("search_config=gpt3/5b", "grid=nemo", f'data_dir="{folder}"')
    found = ask_for(*words)
    command = shlex.split(training_command(found, found.found.candidates[0]))
    assert said in command


def test_1500_minutes_are_a_day_and_an_hour() -> None:
    words = train(max_minutes_per_run=1500)
    assert "--time=1-1:0:00" in first_job("search_config=gpt3/5b", "grid=nemo", *words)


def test_base_command_runs_in_its_own_allocation() -> None:
    text = first_job("search_config=gpt3/5b", "grid=nemo", "cluster_type=bcp")
    assert text.startswith("#!/usr/bin/env bash\nbcprun --nnodes 16 --npernode 8 --cmd '")
