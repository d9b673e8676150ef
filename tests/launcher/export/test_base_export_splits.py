"""Batches, degrees and shapes of NVIDIA's files in words that frameworks start from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.export import export_base
from autoconf_launch.launcher.exporters import BASE_EXPORTERS
from autoconf_launch.launcher.spelling import parse_toml
from autoconf_launch.tuning_spaces import base_template
from autoconf_launch.tuning_spaces.recommend_tables import base_template_names

from .test_base_export import base, flags

STRATEGY = ("trainer", "strategy")


def ship(name: str) -> RawConfig:
    """NVIDIA's own file, as a search completes it."""
    family = re.sub(r"\d?_.*", "", name)
    named = base_template(name).with_value(
        ("autoconf", "family"), "qwen2" if family == "qwen" else family
    )
    return named.with_value(("autoconf", "vocab_size"), 32000)


def titan(document: RawConfig) -> RawConfig:
    return parse_toml(export_base(document, "torchtitan").text)


def with_split(document: RawConfig, **degrees: int) -> RawConfig:
    for name, size in degrees.items():
        document = document.with_value((*STRATEGY, f"{name}_model_parallel_size"), size)
    return document


@pytest.mark.parametrize("name", base_template_names())
def test_a_file_of_nemo_1_that_names_no_groups_has_a_key_for_each_head(name: str) -> None:
    document = ship(name)
    stack: dict[str, Any] = document.to_dict()["model"]
    model = pretraining(document).model
    assert model.form.groups == (stack.get("num_query_groups") or model.shape.heads)


def test_positions_gates_biases_and_ties_of_nemo_1_are_read_and_others_stay() -> None:
    document = ship("gpt3")
    for name, value in {
        "position_embedding_type": "rope",
        "bias": False,
        "share_embeddings_and_output_weights": False,
        "activation": "fast-swiglu",
        "seed": 7,
    }.items():
        document = document.with_value(("model", name), value)
    said = flags(export_base(document, "megatron").text)
    assert said["--position-embedding-type"] == "rope"
    needed = {"--disable-bias-linear", "--untie-embeddings-and-output-weights", "--swiglu"}
    assert needed <= set(said)
    assert yaml.safe_load(export_base(document, "nemo1").text)["model"]["seed"] == 7


@pytest.mark.parametrize(("family", "rate"), [("gpt3", "0.1"), ("llama", "0")])
def test_dropout_is_said_because_megatrons_own_is_a_tenth(family: str, rate: str) -> None:
    said = flags(export_base(base(family), "megatron").text)
    assert (said["--hidden-dropout"], said["--attention-dropout"]) == (rate, rate)


def test_experts_with_tensor_parallelism_split_the_sequence() -> None:
    document = with_split(base("mixtral"), tensor=2)
    assert "--sequence-parallel" in flags(export_base(document, "megatron").text)
    assert "sequence_parallel=True" in export_base(document, "nemo2").text
    assert yaml.safe_load(export_base(document, "nemo1").text)["model"]["sequence_parallel"]


@pytest.mark.parametrize(
    ("virtual", "flag", "layers_each"),
    [
        (3, "--num-layers-per-virtual-pipeline-stage", True),
        (5, "--num-virtual-stages-per-pipeline-rank", False),
    ],
)
def test_virtual_stages_are_given_by_their_layers_or_counted_where_these_are_unequal(
    virtual: int, flag: str, layers_each: bool
) -> None:
    document = with_split(base("llama"), pipeline=2)
    document = document.with_value((*STRATEGY, "virtual_pipeline_model_parallel_size"), virtual)
    layers = pretraining(document).model.shape.layers
    expected = layers // (2 * virtual) if layers_each else virtual
    assert flags(export_base(document, "megatron").text)[flag] == str(expected)


@pytest.mark.parametrize("framework", BASE_EXPORTERS)
def test_a_micro_batch_divides_what_a_replica_sees(framework: str) -> None:
    document = base("gpt3").with_value(("model", "global_batch_size"), 160 * 6)
    exported = export_base(document, framework)
    changed = "160 replicas get 6 samples each; micro_batch changed from 4 to 3"
    assert changed in exported.left_out
    assert re.search(r"(micro|local)[-_]batch[-_]size(\"?: | = |=| )3\b", exported.text)
    odd = base("gpt3").with_value(("model", "global_batch_size"), 161)
    assert "161 is not a multiple of 160 replicas" in export_base(odd, framework).left_out[0]


def test_a_model_that_torchtitan_has_no_pipeline_for_shards_data_instead() -> None:
    document = with_split(base("mixtral"), pipeline=4, tensor=1)
    document = document.with_value(("data", "global_batch_size"), 320)
    made = titan(document)
    assert made.get(("parallelism", "pipeline_parallel_degree")) == 1
    assert made.get(("parallelism", "data_parallel_shard_degree")) == 160
    assert "4 pipeline stages" in export_base(document, "torchtitan").left_out[0]
    piped = with_split(base("llama"), pipeline=4, tensor=1)
    text = export_base(piped, "torchtitan_module").text
    assert "pipeline_parallel_degree=4" in text
    assert "disable_cuda_graphs=True" in text, "0.3 makes none of a pipeline"


def test_torchtitans_tensor_parallelism_divides_the_groups_of_keys() -> None:
    document = with_split(base("chatglm"), tensor=4)
    assert titan(document).get(("parallelism", "tensor_parallel_degree")) == 2
    notes = "".join(export_base(document, "torchtitan").left_out)
    assert "tensor_parallel must divide 2 groups" in notes


def test_experts_are_experts_in_torchtitan() -> None:
    made = export_base(base("mixtral"), "torchtitan")
    assert 'name = "qwen3"' in made.text
    assert "num_experts=8, num_shared_experts=0, top_k=2" in made.text
    assert "num_experts=8" in export_base(base("mixtral"), "torchtitan_module").text


def test_a_module_for_torchtitan_needs_the_vocabulary() -> None:
    document = base("llama").without(("model", "config", "vocab_size"))
    with pytest.raises(ConfigError, match=r"set model\.config\.vocab_size"):
        export_base(document, "torchtitan_module")


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_a_nemo_1_file_is_whole_but_for_the_data(family: str) -> None:
    made = yaml.safe_load(export_base(base(family), "nemo1").text)
    missing = [path for path, value in RawConfig(made).leaves() if value == "???"]
    assert missing == [("model", "data", "data_prefix")]


@pytest.mark.parametrize("framework", ["nemo1", "nemo2", "megatron"])
def test_more_ranks_than_groups_of_keys_are_told(framework: str) -> None:
    document = with_split(base("chatglm"), tensor=4)
    told = "".join(export_base(document, framework).left_out)
    assert "2 groups of keys and values on 4 tensor-parallel ranks" in told
