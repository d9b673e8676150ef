from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search.prepare import compose
from autoconf_launch.tuning_spaces import CONF

TRAIN = ("search_config", "train_settings")


def test_without_overrides_it_is_the_seeds_default() -> None:
    assert compose([]).choice == "gpt3/5b"


def test_the_folder_of_results_follows_from_the_tool_s_path() -> None:
    found = compose(["auto_configurator_path=/tool"])
    assert found.document.get((*TRAIN, "logs")) == "/tool/results/gpt3/5b_80gb"


def test_the_bignlp_path_stands_for_the_tool_s() -> None:
    found = compose(["bignlp_hp_tool_path=/opt/bignlp-hp-tool"])
    assert found.document.get(("base_results_dir",)) == "/opt/bignlp-hp-tool/results"
    data = found.document.get(("data_dir",))
    assert data == "/opt/bignlp-hp-tool/../bignlp-scripts/data"


@pytest.mark.parametrize("word", ["n[3-4]", "n[3-4,7],m1", "'n[3-4]'", "n3"])
def test_nodes_are_written_as_slurm_has_them(word: str) -> None:
    found = compose([f"cluster.nodelist={word}"])
    assert found.document.get(("cluster", "nodelist")) == word.strip("'")


def test_a_key_that_no_file_has_is_taken() -> None:
    found = compose(["search_config.train_settings.override_search_num_nodes=2"])
    assert found.document.get((*TRAIN, "override_search_num_nodes")) == 2


def test_bignlp_s_inference_keys_are_valid() -> None:
    found = compose(["search_config.inference_settings.max_latency_ms=1200"])
    path = ("search_config", "inference_settings", "max_latency_ms")
    assert found.document.get(path) == 1200


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("search_config=gpt3/6b", "did you mean 'gpt3/5b'"),
        ("search_config=gpt3/13b.yaml", "did you mean 'gpt3/20b'"),
        ("search_config=llama/9b", "did you mean 'llama/llama3_8b'"),
        ("search_config=qwen/60b", "did you mean 'qwen2/72b'"),
        ("search_config=gpt3/0.b", "did you mean 'gpt3/"),
        ("search_config=gtp3/5b", "did you mean 'gpt3/5b'"),
        ("=5", "'=5' must be key=value"),
        ("cluster=bcn", "did you mean 'bcp'"),
        ("num_nodes=3", "did you mean 'search_config.train_settings.num_nodes'"),
        ("search_config.train_settings.num_node=3", "train_settings.num_nodes'"),
        ("wandb.enabled=True", "did you mean 'wandb.enable'"),
        ("clustertype=bcm", "did you mean 'cluster_type'"),
        ("zzz=1", "zzz is unknown"),
        ("search_config.train_settings.tensor_parallel_sizes=[1", "no viable alternative"),
        ("gpt3/5b", "must be key=value"),
    ],
)
def test_a_wrong_word_is_one_sentence_with_the_nearest(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nodes_of_base_command_are_read_from_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NGC_ARRAY_SIZE", "4")
    found = compose(["search_config.train_settings.num_nodes=$NGC_ARRAY_SIZE"])
    assert found.document.get((*TRAIN, "num_nodes")) == 4


@pytest.mark.parametrize("value", ["", "$NGC_ARRAY_SIZE"])
def test_without_that_variable_it_says_so(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NGC_ARRAY_SIZE", raising=False)
    found = compose([f"search_config.train_settings.num_nodes={value}"])
    assert found.document.get((*TRAIN, "num_nodes")) == 16
    assert "NGC_ARRAY_SIZE is not set" in found.notes[0]


def test_the_cluster_s_file_follows_its_type() -> None:
    found = compose(["cluster_type=bcp"])
    assert "partition" not in found.document.get(("cluster",))


def test_a_folder_of_one_s_own_is_completed_by_ours(tmp_path: Path) -> None:
    text = (CONF / "config.yaml").read_text().replace("gpt3/5b", "t5/0.22b")
    (tmp_path / "config.yaml").write_text(text)
    assert compose([], tmp_path).choice == "t5/0.22b"


def test_the_seeds_own_defaults_list_composes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "defaults:\n  - _self_\n  - cluster: bcm\n  - search_config: gpt3/5b\n"
        "  - override hydra/job_logging: stdout\n\n"
        "bignlp_hp_tool_path: ???\n"
        "bignlp_inference_path: ${bignlp_hp_tool_path}/../BigNLP-Inference-Scripts\n"
        "data_dir: ${bignlp_hp_tool_path}/../bignlp-scripts/data\n"
        "base_results_dir: ${bignlp_hp_tool_path}/results\n\n"
        "training_container: nvcr.io/ea-bignlp/bignlp-training:22.04-py3\n"
        "container_mounts:\n    - null\n"
    )
    found = compose(["bignlp_hp_tool_path=/opt/hp"], tmp_path)
    assert found.document.get((*TRAIN, "logs")) == "/opt/hp/results/gpt3/5b_80gb"


def test_an_unknown_key_of_a_file_is_named(tmp_path: Path) -> None:
    text = (CONF / "config.yaml").read_text() + "\nbase_result_dir: /x\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match="did you mean 'base_results_dir'"):
        compose([], tmp_path)


def test_nothing_of_a_file_is_evaluated(tmp_path: Path) -> None:
    text = (CONF / "config.yaml").read_text() + "\ndata_dir: ${eval:'1+1'}\n"
    (tmp_path / "config.yaml").write_text(text.replace("data_dir: ${launcher", "#", 1))
    with pytest.raises(ConfigError, match="eval"):
        compose([], tmp_path)


def test_a_variable_of_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/from/there")
    found = compose(["base_results_dir=${oc.env:WHERE}"])
    assert found.document.get(("base_results_dir",)) == "/from/there"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a regular file"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"a: 1\na: 2\n", "key 'a' is given twice"),
        (b"a: " + b"[" * 300, "nested more than 64 deep"),
        (b"defaults: [{}]\n", "config"),
    ],
)
def test_a_hostile_file_of_the_users_folder_is_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "config.yaml"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        compose(["search_config=gpt3/5b"], tmp_path)
