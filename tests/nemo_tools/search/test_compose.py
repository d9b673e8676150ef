from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search.prepare import compose
from autoconf_launch.tuning_spaces import CONF

TRAIN, INFERENCE = "search_config.train_settings", "search_config.inference_settings"


@pytest.mark.parametrize("value", ["", "$NGC_ARRAY_SIZE"])
def test_without_its_variable_base_command_says_so(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NGC_ARRAY_SIZE", raising=False)
    found = compose([f"{TRAIN}.num_nodes={value}"])
    assert found.document.get((*TRAIN.split("."), "num_nodes")) == 16
    assert "NGC_ARRAY_SIZE is not set" in found.notes[0]


TOOL = "/opt/bignlp-hp-tool"


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (("auto_configurator_path=/tool",), f"{TRAIN}.logs", "/tool/results/gpt3/5b_80gb"),
        ((f"bignlp_hp_tool_path={TOOL}",), "base_results_dir", f"{TOOL}/results"),
        ((f"bignlp_hp_tool_path={TOOL}",), "data_dir", f"{TOOL}/../bignlp-scripts/data"),
        (("cluster.nodelist=n[3-4]",), "cluster.nodelist", "n[3-4]"),
        (("cluster.nodelist=n[3-4,7],m1",), "cluster.nodelist", "n[3-4,7],m1"),
        (("cluster.nodelist='n[3-4]'",), "cluster.nodelist", "n[3-4]"),
        (("cluster.nodelist=n3",), "cluster.nodelist", "n3"),
        ((f"{TRAIN}.override_search_num_nodes=2",), f"{TRAIN}.override_search_num_nodes", 2),
        ((f"{INFERENCE}.max_latency_ms=1200",), f"{INFERENCE}.max_latency_ms", 1200),
        ((f"{TRAIN}.num_nodes=$NGC_ARRAY_SIZE",), f"{TRAIN}.num_nodes", 4),
        (("base_results_dir=${oc.env:WHERE}",), "base_results_dir", "/from/there"),
        (("cluster_type=bcp",), "cluster.partition", None),
    ],
)
def test_what_is_given_is_in_the_document(
    overrides: tuple[str, ...], key: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_ARRAY_SIZE", "4")
    monkeypatch.setenv("WHERE", "/from/there")
    found = compose(overrides)
    assert found.choice == "gpt3/5b"
    assert found.document.get(tuple(key.split("."))) == value


def test_a_word_that_hydra_cannot_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="no viable alternative"):
        compose([f"{TRAIN}.tensor_parallel_sizes=[1"])


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
    assert found.document.get((*TRAIN.split("."), "logs")) == "/opt/hp/results/gpt3/5b_80gb"


OURS = (CONF / "config.yaml").read_bytes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a regular file"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"a: 1\na: 2\n", "key 'a' is given twice"),
        (b"a: " + b"[" * 300, "nested more than 64 deep"),
        (b"defaults: [{}]\n", "config"),
        (OURS + b"\nbase_result_dir: /x\n", "did you mean 'base_results_dir'"),
        (OURS.replace(b"data_dir: ${launcher", b"#", 1) + b"\ndata_dir: ${eval:'1+1'}\n", "eval"),
    ],
)
def test_a_wrong_or_hostile_file_of_the_users_folder_is_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "config.yaml"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        compose(["search_config=gpt3/5b"], tmp_path)
