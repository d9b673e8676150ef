"""The verb through the command's entry point, without launching anything."""

from __future__ import annotations

import json
import re
import shlex
import sys
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from autoconf_launch.tuning_spaces.recommend_tables import search_config_names

from .verb import Ran, Run

SEEDS_BCP = (
    "search_config=gpt3/0.126b run_inference_hp_search=False "
    "auto_configurator_path=/opt/NeMo-Megatron-Launcher/auto_configurator "
    "data_dir=/mount/data/the_pile_gpt3 base_results_dir=/mount/results/auto_configurator "
    "search_config.train_settings.num_nodes={nodes} cluster_type=bcp"
)
TRAIN, INFERENCE = "search_config.train_settings", "search_config.inference_settings"
FAMILIES = {
    family: list(names)
    for family, names in groupby(search_config_names(), lambda name: name.partition("/")[0])
}


def dry(search: Run, *words: str) -> Ran:
    done = search("--dry-run", *words)
    assert done.code == 0, done.err
    return done


@pytest.mark.parametrize("name", [name for names in FAMILIES.values() for name in names])
def test_every_search_configuration_completes(name: str, search: Run, tmp_path: Path) -> None:
    """The first of each family with the planner's candidates and inference, which take long."""
    family = name.partition("/")[0]
    is_first = name == FAMILIES[family][0]
    more = () if is_first else ("grid=nemo", "run_inference_hp_search=False")
    out = dry(search, f"search_config={name}", *more).out
    assert out.startswith(f"{family}_")
    assert "#SBATCH --nodes=" in out
    assert out.endswith("Nothing was launched or written (--dry-run).\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for names in FAMILIES.values() for name in names[1:]])
def test_every_search_configuration_has_the_planners_candidates(name: str, search: Run) -> None:
    assert "#SBATCH --nodes=" in dry(search, f"search_config={name}").out


@pytest.mark.parametrize(
    ("nodes", "array", "found"),
    [("", "", 8), ("$NGC_ARRAY_SIZE", "", 8), ("$NGC_ARRAY_SIZE", "2", 2), ("4", "", 4)],
)
def test_the_seeds_command_on_base_command_completes(
    nodes: str, array: str, found: int, search: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if array:
        monkeypatch.setenv("NGC_ARRAY_SIZE", array)
    done = dry(search, *shlex.split(SEEDS_BCP.format(nodes=nodes)))
    assert f"on {found} x 8 ranks" in done.out
    assert "bcprun --nnodes" in done.out
    assert "++data_dir=/mount/data/the_pile_gpt3" in done.out
    assert "inference" not in done.out


def test_the_seeds_unknown_size_completes(search: Run) -> None:
    words = (
        "bignlp_hp_tool_path=/opt/hp",
        f"{TRAIN}.num_nodes=20",
        f"{TRAIN}.max_training_days=5",
    )
    out = dry(search, "search_config=gpt3/unknown_size", *words).out
    assert "You can train a 4.03 B model in 5 days on 160 GPUs" in out


def test_every_key_of_the_seeds_can_be_given(search: Run) -> None:
    keys = {
        "model_size_in_b": 5,
        "num_nodes": 16,
        "gpus_per_node": 8,
        "gpu_memory_gb": 80,
        "max_training_days": 5,
        "limit_search_runs": 100,
        "output_top_n": 10,
        "max_steps_per_run": 50,
        "max_minutes_per_run": 10,
        "tflops_per_gpu": 140,
        "num_tokens_in_b": 300,
        "vocab_size": 51200,
        "logs": "${base_results_dir}/${search_config_value}_${.gpu_memory_gb}gb",
        "tensor_parallel_sizes": "[1,2]",
        "pipeline_parallel_sizes": "null",
        "min_model_parallel_size": "auto",
        "max_model_parallel_size": "auto",
        "micro_batch_sizes": "auto",
        "act_ckpt_layers": "auto",
    }
    words = [f"{TRAIN}.{key}={value}" for key, value in keys.items()]
    inference = [
        "search_config.inference_settings.run.data_type=fp16",
        "search_config.inference_settings.benchmark.batch_sizes=[4,8]",
        "search_config.inference_settings.max_batch_sizes=[1,2]",
        "search_config.inference_settings.max_latency_ms=1200",
    ]
    paths = ["launcher_scripts_path=/l", "fastertransformer_path=/f", "bignlp_inference_path=/i"]
    out = dry(search, *words, *inference, *paths, "wandb.api_key_file=/k").out
    assert "gpt3_5b" in out


BASE_ALONE = ("run_training_hp_search=False", "run_inference_hp_search=False")


def test_a_search_of_both_kinds_shows_candidates_and_points(search: Run) -> None:
    out = dry(search).out
    assert "gpt3_5b: 24 layers of 4096" in out
    assert "Inference of gpt3_5b with engine vllm (planner grid)" in out
    assert "42 of 42 points, 60 tokens in and 20 out" in out
    assert out.count("Nothing was launched or written (--dry-run).") == 1
    assert "Inference" not in dry(search, "run_inference_hp_search=False").out
    document = dry(search, "--json").document
    assert len(document["inference"]["points"]) == 42
    assert document["candidates"]
    assert "#SBATCH" in document["inference"]["points"][0]["job"]


def test_an_inference_search_alone_shows_points_and_the_first_job(search: Run) -> None:
    words = ("run_training_hp_search=False", "engine=vllm")
    out = dry(search, *words).out
    assert "candidates" not in out
    note = "Jobs look for engine vllm in the container of the training"
    assert note in out
    assert note not in dry(search, *words, "inference_container=vllm/vllm-openai").out
    for command in ("bench latency", "bench throughput", "bench sweep serve", "bench serve"):
        assert f"vllm {command}" in out
    assert "'vllm serve " in out


def test_an_inference_search_on_a_cluster_writes_a_job_for_each_point(
    search: Run, tmp_path: Path
) -> None:
    words = ("run_training_hp_search=False", "engine=vllm", f"base_results_dir={tmp_path}")
    done = search(*words)
    assert done.code == 0, done.err
    folder = tmp_path / "gpt3" / "5b_80gb" / "inference"
    scripts = sorted(folder.glob("*/submission_script.sh"))
    assert len(scripts) == 42
    assert all(str(one) in (folder / "submit_all.sh").read_text() for one in scripts)
    table = (folder / "final_summary" / "final_output.csv").read_text()
    assert table.count("has left neither figures nor a log") == 42
    assert "no_steps" not in table
    (folder / "gpt3_5b_tp1_pp1_bs8" / "log_job_7.error").write_text("boom\n")
    (folder / "gpt3_5b_tp1_pp1_bs16" / "latency.json").write_text('{"latencies": [1e-4]}')
    figures = {"latencies": [0.5, 0.5], "avg_latency": 0.5}
    (folder / "gpt3_5b_tp1_pp1_bs4" / "latency.json").write_text(json.dumps(figures))
    out = search(*words).out
    assert "Recommended: gpt3_5b_tp1_pp1_bs4, 8 samples/s/GPU at 500 ms" in out
    table = (folder / "final_summary" / "final_output.csv").read_text()
    assert table.count("latency.json was not written") == 1
    assert "TFLOP/s per GPU, above the peak of" in table
    load_test = folder / "gpt3_5b_tp1_pp1_bs4" / "load_test"
    assert f"To measure it under load, submit {load_test}/submission_script.sh" in out
    assert "vllm bench throughput" in (load_test / "submission_script.sh").read_text()
    figures = {"requests_per_second": 3.0, "tokens_per_second": 240.0}
    (load_test / "throughput.json").write_text(json.dumps(figures))
    assert "load.csv" in search(*words).out
    table = (folder / "final_summary" / "load.csv").read_text()
    assert table.splitlines()[1].startswith("throughput,,3.0,240.0,,240.0,")


def test_jobs_of_no_point_are_no_success(search: Run, tmp_path: Path) -> None:
    sizes = f"{INFERENCE}.run.tensor_parallel_sizes=[5]"
    words = ("run_training_hp_search=False", "engine=vllm", f"base_results_dir={tmp_path}")
    done = search(*words, sizes, f"{INFERENCE}.benchmark.batch_sizes=[1]")
    assert done.code == 3
    assert "No point could be measured. gpt3_5b_tp5_pp1_bs1: " in done.err
    assert "Submit all" not in done.out
    (table,) = tmp_path.rglob("final_output.csv")
    assert "tp=5 must divide the 32 attention heads" in table.read_text()


@pytest.mark.parametrize("name", ["bert/0.11b", "t5/0.22b"])
def test_a_training_goes_on_alone_where_nobody_asked_for_inference(name: str, search: Run) -> None:
    done = dry(search, f"search_config={name}")
    assert "Note: No inference search: " in done.out
    assert "The job of #1" in done.out


@pytest.mark.parametrize("kind", ["bcm", "bcp", "local"])
def test_the_base_configuration_alone_needs_no_machine_data_or_container(
    kind: str, search: Run, tmp_path: Path
) -> None:
    words = (*BASE_ALONE, f"cluster_type={kind}", "data_dir=/no/such")
    assert "only the base configuration" in dry(search, *words).out
    done = search(*words, "base_results_dir=out", "training_container=null")
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file())
    assert (done.code, path.name) == (0, "base_cfg_5b.yaml"), done.err
    assert str(path) in done.out
    document = search(*words, "base_results_dir=out", "--json").document
    assert (document["schema_version"], document["base_config"]) == (1, str(path))


def test_slurm_s_options_are_those_of_the_cluster_s_file(search: Run) -> None:
    words = ("cluster.partition=luna", "cluster.account=acct", "container_mounts=[/m,/a:/b]")
    out = dry(search, *words, "auto_configurator_path=/tool", "grid=nemo").out
    assert (
        "#SBATCH -p luna\n#SBATCH -A acct\n#SBATCH --job-name=nemo_megatron_autoconfig:gpt3" in out
    )
    assert "#SBATCH --time=0-0:20:00" in out
    assert "/tool:/tool,/tool/results:/tool/results,/launcher_scripts/data" in out
    assert ",/m:/m,/a:/b --no-container-mount-home -o /tool/results/gpt3/5b_80gb" in out


def test_the_document_has_every_candidate(search: Run) -> None:
    document = dry(search, "search_config=gpt3/175b", "grid=nemo", "--json").document
    assert document["schema_version"] == 1
    assert document["found"] == len(document["candidates"]) == 9
    first = document["candidates"][0]
    assert (first["tensor_parallel"], first["pipeline_parallel"], first["micro_batch"]) == (
        8,
        4,
        1,
    )
    assert first["job"].startswith("#!/usr/bin/env bash\n#SBATCH --nodes=128")


def test_without_hydra_it_says_what_to_install(
    search: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)
    done = search("--dry-run")
    assert (done.code, done.is_one_line) == (2, True)
    assert "pip install 'autoconf-launch[search]'" in done.err


def test_so_many_candidates_are_listed_as_are_asked_for(search: Run) -> None:
    words = ("--dry-run", "grid=nemo", "run_inference_hp_search=False")
    ten, three, every = (search(*words, *top).out for top in ((), ("--top", "3"), ("--top", "0")))
    rows = [len(re.findall(r"^ *\d+ .*gpt3_5b", out, re.MULTILINE)) for out in (ten, three, every)]
    assert rows[:2] == [10, 3]
    assert f"… and {rows[2] - 3} more; --top 0 lists all." in three


OURS = (
    "search_config=gpt3/0.126b",
    "cluster.train_with=ours",
    "run_inference_hp_search=False",
    "base_results_dir=out",
)


@pytest.mark.parametrize("kind", ["bcm", "bcp"])
def test_a_search_with_our_runtime_is_written_where_its_cluster_does_not_answer(
    kind: str, search: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    done = search(*OURS, f"cluster_type={kind}")
    assert done.code == 0, done.err
    folder = tmp_path / "out" / "gpt3" / "0.126b_80gb"
    layouts = {one.name.split("_mbs_")[0] for one in (folder / "candidate_configs").glob("*.yaml")}
    assert {name[len("gpt3_0.126b_8nodes_") :] for name in layouts} >= {
        "tp_1_pp_1_cp_1_ep_1",
        "tp_1_pp_2_cp_1_ep_1",
        "tp_1_pp_1_cp_2_ep_1",
    }
    assert not [name for name in layouts if "_tp_1_" not in name]  # the model has no tensor plan
    script = (folder / "submit_all.sh").read_text()
    assert f"exec autoconf-launch search {shlex.join((*OURS, f'cluster_type={kind}'))}" in script
    assert str(folder / "submit_all.sh") in done.out
    document = search(*OURS, f"cluster_type={kind}", "--json").document
    assert {one["job"] for one in document["candidates"]} == {None}


def test_a_dry_run_says_what_would_refuse_a_run_here(search: Run) -> None:
    words = ("search_config=gpt3/5b", "run_inference_hp_search=False", "data_dir=/no/such")
    out = dry(search, *words).out
    assert "Note: A run would be refused here: data_dir: /no/such does not exist" in out
