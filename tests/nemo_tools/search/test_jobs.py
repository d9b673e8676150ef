from __future__ import annotations

import shlex

import pytest

pytest.importorskip("hydra")

from autoconf_launch.nemo.search.jobs import job_text, training_command

from .asked import ask_for, train


def first_job(*overrides: str) -> str:
    found = ask_for(*overrides)
    return job_text(found, found.found.candidates[0])


FIVE_B = ("search_config=gpt3/5b", "grid=nemo")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (FIVE_B, "megatron_gpt_pretraining.py"),
        (("search_config=llama/llama3_8b", "grid=nemo"), "megatron_gpt_pretraining.py"),
        (("search_config=mt5/0.17b", "grid=nemo"), "megatron_t5_pretraining.py"),
        (("search_config=bert/4b", "grid=nemo"), "megatron_bert_pretraining.py"),
        (
            (*FIVE_B, "cluster.gpus_per_task=1"),
            "#SBATCH --gpus-per-task=1\n#SBATCH --gpus-per-node=8\n",
        ),
        ((*FIVE_B, "cluster.gpus_per_node=null"), "#SBATCH --ntasks-per-node=8"),
        ((*FIVE_B, *train(logs="/elsewhere/logs")), ",/elsewhere/logs:/elsewhere/logs"),
        ((*FIVE_B, *train(max_minutes_per_run=1500)), "--time=1-1:0:00"),
        (
            (*FIVE_B, "cluster_type=bcp"),
            "#!/usr/bin/env bash\nbcprun --nnodes 16 --npernode 8 --cmd '",
        ),
    ],
)
def test_a_job_has_its_script_and_what_its_cluster_needs(
    words: tuple[str, ...], said: str
) -> None:
    text = first_job(*words)
    assert said in text
    if "cluster.gpus_per_node=null" in words:
        assert "--gpus-per-node" not in text


def test_families_of_nemo_2_alone_run_a_script_of_their_recipe() -> None:
    found = ask_for("search_config=gemma/unknown_size", "base_results_dir=/r")
    name = found.found.candidates[0].name
    command = training_command(found, found.found.candidates[0])
    folder = "/r/gemma/unknown_size_80gb/candidate_configs"
    assert command == f"python3 -u {folder}/{name}.py"


def test_a_job_reads_the_candidate_s_file_and_has_a_folder_of_its_own() -> None:
    words = (*FIVE_B, "base_results_dir=/r", "data_dir=/d")
    name, text = ask_for(*words).found.candidates[0].name, first_job(*words)
    assert "--config-path=/r/gpt3/5b_80gb/candidate_configs" in text
    assert f"--config-name={name}.yaml ++data_dir=/d" in text
    assert f"-o /r/gpt3/5b_80gb/training_logs/{name}/log_%j.log" in text


def test_the_key_of_wandb_is_read_from_its_file_inside_the_job() -> None:
    key = "wandb.api_key_file=/keys/w b"
    text = first_job(*FIVE_B, "wandb.enable=True", key)
    assert "sh -c 'WANDB_API_KEY=\"$(head -n 1 " in text
    assert "/keys/w b:/keys/w b" in text
    assert "WANDB" not in first_job(*FIVE_B, key)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/a b", "++data_dir='/a b'"),
        ("/it's", r"++data_dir='/it\'s'"),
        ("/a\\\\", "++data_dir='/a\\\\'"),
    ],
)
def test_a_folder_s_name_is_quoted_for_hydra_too(folder: str, said: str) -> None:
    found = ask_for(*FIVE_B, f'data_dir="{folder}"')
    assert said in shlex.split(training_command(found, found.found.candidates[0]))
