"""A base configuration in frameworks' words: golden files, splits of NVIDIA's files, and names.

The lists of names are taken from the installed frameworks; each says from which version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.autotuner.sizing import (
    Family,
    ModelQuestion,
    RunPlan,
    choose_model,
    pretraining,
)
from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.estimates import base_document
from autoconf_launch.launcher.export import export_base
from autoconf_launch.launcher.exporters import BASE_EXPORTERS
from autoconf_launch.launcher.spelling import parse_toml
from autoconf_launch.tuning_spaces import base_template, generation_of, tables
from autoconf_launch.tuning_spaces.recommend_tables import base_template_names

DATA = Path(__file__).parents[2] / "data" / "dialects"
USUAL = {"gpt3": (51200, 2048), "t5": (29000, 512), "mt5": (250_000, 512), "bert": (30522, 512)}
GOLDEN = {"gpt3": 5.0, "llama": 8.0, "mixtral": 7.0, "t5": 11.0}
EXPORTED = [
    (family, framework)
    for family in GOLDEN
    for framework in BASE_EXPORTERS
    if family != "t5" or not framework.startswith("torchtitan")
]
DECODERS = [name for name in KNOWN_FAMILIES if name not in ("t5", "mt5", "bert")]


@cache
def base(family: str, size_b: float = 5.0) -> RawConfig:
    vocabulary, sequence = USUAL.get(family, (32000, 4096))
    model = choose_model(
        tables(generation_of(Family(family))),
        ModelQuestion(
            family=Family(family),
            size_b=size_b,
            vocabulary=vocabulary,
            sequence=sequence,
            gpu_memory_gb=80,
        ),
    )
    plan = RunPlan(days=6.0, nodes=20, gpus_per_node=8, tokens_b=300.0)
    return base_document(model, plan, None)


def flags(text: str) -> dict[str, str]:
    lines = [line.split() for line in text.splitlines() if line.startswith("--")]
    return {line[0]: " ".join(line[1:]) for line in lines}


@pytest.mark.parametrize(("family", "framework"), EXPORTED)
def test_what_is_exported_is_as_the_golden_file_says(family: str, framework: str) -> None:
    golden = DATA / "export_base" / f"{family}.{framework}.txt"
    assert export_base(base(family, GOLDEN[family]), framework).text == golden.read_text()


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_all_exports_train_the_same(family: str) -> None:
    document = base(family)
    asked = pretraining(document)
    megatron = flags(export_base(document, "megatron").text)
    nemo1 = yaml.safe_load(export_base(document, "nemo1").text)
    stack: dict[str, Any] = nemo1["model"].get("encoder", nemo1["model"])
    assert int(megatron["--hidden-size"]) == stack["hidden_size"] == asked.model.shape.hidden
    assert int(megatron["--ffn-hidden-size"]) == stack["ffn_hidden_size"] == asked.model.shape.ffn
    assert int(megatron["--train-iters"]) == nemo1["trainer"]["max_steps"]
    assert float(megatron["--lr"]) == nemo1["model"]["optim"]["lr"]
    assert int(megatron["--global-batch-size"]) == nemo1["model"]["global_batch_size"]
    recipe = export_base(document, "nemo2").text
    assert f"hidden_size={asked.model.shape.hidden}," in recipe
    assert f"max_steps={asked.schedule.steps}," in recipe


def width(text: str, hidden: int) -> int:
    plain = re.search(r"hidden_dim=(\d+)", text)
    if plain:
        return int(plain[1])
    found = re.search(r"ffn_dim_multiplier=([\d.]+)", text)
    assert found is not None
    return int(float(found[1]) * int(8 * hidden / 3))


@pytest.mark.parametrize("family", DECODERS)
def test_the_flavors_perceptron_has_as_many_weights_as_the_models(family: str) -> None:
    model = pretraining(base(family)).model
    made = width(export_base(base(family), "torchtitan").text, model.shape.hidden)
    ffn = model.shape.ffn
    assert made == ffn if model.form.gated else abs(3 * made - 2 * ffn) <= 3 * 32


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_a_nemo1_export_is_read_as_the_same_training(family: str) -> None:
    document = base(family)
    text = export_base(document, "nemo1").text
    again = RawConfig(yaml.safe_load(text)).with_value(
        ("autoconf",), {"family": family, "vocab_size": pretraining(document).model.vocabulary}
    )
    assert pretraining(again).model == pretraining(document).model
    assert pretraining(again).schedule == pretraining(document).schedule


def test_an_edited_file_says_what_is_exported() -> None:
    edited = base("gpt3").with_value(("model", "num_layers"), 7)
    assert "--num-layers 7\n" in export_base(edited, "megatron").text


def test_what_a_framework_cannot_say_stands_at_the_top() -> None:
    exported = export_base(base("t5", 11.0), "megatron")
    assert "GELU-gated" in exported.left_out[-1]
    for sentence in exported.left_out:
        assert f"# not expressed: {sentence}\n" in exported.text
    assert exported.text.startswith("# not expressed: ")


def edit(path: tuple[str, ...], value: Any) -> RawConfig:
    document = base("gpt3")
    return document.without(path) if value is None else document.with_value(path, value)


@pytest.mark.parametrize(
    ("document", "framework", "says"),
    [
        (edit(("model", "num_layers"), None), "megatron", "lacks model.num_layers"),
        (
            edit(("model", "hidden_size"), "${multiply:4, 8}"),
            "megatron",
            "must be a whole number",
        ),
        (edit(("model", "optim", "lr"), "fast"), "megatron", "must be a number"),
        (edit(("autoconf", "family"), None), "megatron", "does not say its family"),
        (base("bert"), "torchtitan", "export to nemo1, nemo2 or megatron"),
        (RawConfig({"train_batch_size": 8}), "megatron", "not a base configuration"),
        (base("gpt3"), "megatrom", "did you mean 'megatron'"),
    ],
)
def test_what_cannot_be_exported_is_named(document: RawConfig, framework: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        export_base(document, framework)


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


NEMO1_KINDS = {"t5": "t5", "mt5": "t5", "bert": "bert"}
AS_THEY_ARE = ("optim", "tokenizer")
"""Sections that NeMo hands on whole, to the optimizer and the tokenizer."""


@cache
def lines(framework: str) -> tuple[str, ...]:
    text = (DATA / "published" / f"{framework}.txt").read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def arguments(framework: str) -> dict[str, set[str]]:
    return {
        name: set(rest.split())
        for name, _, rest in (row.partition(":") for row in lines(framework))
    }


def nemo1_keys(family: str) -> set[str]:
    model = RawConfig(yaml.safe_load(export_base(base(family), "nemo1").text)["model"])
    return {".".join(path) for path, _ in model.leaves()}


def read_by_nemo1(family: str) -> set[str]:
    kind, listed = NEMO1_KINDS.get(family, "gpt"), arguments("nemo1")
    read = listed[f"{kind} read"] | listed[f"{kind} needed"] | listed["any fields"]
    stacks = {f"{stack}.{key}" for stack in ("encoder", "decoder") for key in listed["any fields"]}
    return read | stacks if kind == "t5" else read


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each function's name, or its first argument in ``run.Config(…)``, and its keywords."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("run.Config", "run.Partial"):
                called = ast.unparse(node.args[0])
            yield called, [word.arg for word in node.keywords if word.arg]


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_megatron_0_6_reads_every_argument(family: str) -> None:
    said = set(flags(export_base(base(family), "megatron").text))
    assert said <= {*lines("megatron_0.6.0")} & {*lines("megatron")}


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_nemo_1_reads_every_key_of_the_model(family: str) -> None:
    keys = {key for key in nemo1_keys(family) if key.partition(".")[0] not in AS_THEY_ARE}
    assert keys <= read_by_nemo1(family)


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_nemo_1_finds_every_key_that_it_has_no_default_for(family: str) -> None:
    keys = nemo1_keys(family)
    sections = {key[: dot.start()] for key in keys for dot in re.finditer(r"\.", key)}
    needed = arguments("nemo1")[f"{NEMO1_KINDS.get(family, 'gpt')} needed"]
    assert needed <= keys | sections


@pytest.mark.parametrize("family", [*KNOWN_FAMILIES, "falcon"])
def test_nemo_2s_classes_are_published_and_take_every_argument(family: str) -> None:
    known, used = arguments("nemo2_arguments"), set()
    for called, words in calls(export_base(base(family), "nemo2").text):
        name = called.rpartition(".")[2]
        used |= {called.removeprefix("llm.")} if called.startswith("llm.") else set()
        if name not in known:
            assert called in ("default_log", "bf16_mixed", "run.run")
            continue
        taken = known[name] | (known["GPTConfig"] if "+" in known[name] else set())
        assert set(words) <= taken, called
    assert {"pretrain"} < used <= set(lines("nemo2"))


@pytest.mark.parametrize("family", DECODERS)
def test_torchtitan_0_2s_flavors_take_every_argument(family: str) -> None:
    text = export_base(base(family), "torchtitan").text
    module = "\n".join(
        line.removeprefix("# ")
        for line in text.splitlines()
        if re.match(r"# (from \w|llama3\.|qwen3\.)", line)
    )
    for called, words in calls(module):
        name = called.rpartition(".")[2]
        assert {f"{name}.{word}" for word in words} <= set(lines("torchtitan"))
    document = parse_toml(text)
    assert {".".join(path) for path, _ in document.leaves()} <= set(lines("torchtitan"))
    assert document.get(("experimental", "custom_import")).endswith("_flavor")


@pytest.mark.parametrize("family", DECODERS)
def test_torchtitan_0_3s_functions_take_every_argument(family: str) -> None:
    text = export_base(base(family), "torchtitan_module").text
    known = arguments("torchtitan_0.3.0")
    places: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("torchtitan"):
            places |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    assert {place.removesuffix(".Config") for place in known} == set(places.values())
    for called, words in calls(text):
        name = called.removesuffix(".Config")
        if name in places:
            assert set(words) <= known[places[name] + called.removeprefix(name)], called
