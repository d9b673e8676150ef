"""Candidates of ``AutoConfigurator``: cases of NeMo 2.0's own unit tests, and ours."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from autoconf_launch import AutoConfigurator, ConfigError
from autoconf_launch.launcher.commands.recommend import recommend
from autoconf_launch.nemo.configurator.results import point_of


def shape(
    name: str, layers: int, hidden: int, heads: int, ffn: int, **more: int
) -> dict[str, Any]:
    sizes = {"num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    return {"class": name, **sizes, "ffn_hidden_size": ffn, **more}


_NEMOTRON_15B = shape("Nemotron4Config15B", 32, 6144, 48, 24576)
_GEMMA_7B = shape("GemmaConfig7B", 28, 3072, 16, 24576, kv_channels=256)
_NEMOTRON_8B = shape("Nemotron3Config8B", 32, 4096, 32, 16384)


def configurator(**arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {"path_to_logs": "logs", "num_nodes": 16, "seq_length": 4096}
    start["grid"] = "nemo"
    return AutoConfigurator(**{**start, **arguments})


def points(found: AutoConfigurator) -> list[tuple[int, ...]]:
    named = [point_of(name) for name in found.generate_configs()[1]]
    return [(*p.layout.mesh, p.layout.micro_batch) for p in named if p]


def sizes(tensor: list[int], pipeline: list[int], micro: list[int], **more: Any) -> dict[str, Any]:
    degrees = {"tensor_parallel_sizes": tensor, "pipeline_parallel_sizes": pipeline}
    return {**degrees, "micro_batch_sizes": micro, **more}


def product(least: int, most: int) -> dict[str, Any]:
    return {"min_model_parallel_size": least, "max_model_parallel_size": most}


LLAMA_70B = {
    "num_nodes": 128,
    "seq_length": 8192,
    "global_batch_size": 2048,
    "micro_batch_sizes": [1],
    "context_parallel_sizes": [1, 2, 4],
    **product(16, 64),
}


@pytest.mark.parametrize(
    ("model", "arguments", "expected"),
    [
        ("llama3-70b", LLAMA_70B, [(4, 1, 4, 1, 1), (8, 1, 2, 1, 1), (8, 1, 4, 1, 1)]),
        ("mistral-7b", sizes([4], [1, 2], [1]), [(4, 1, 1, 1, 1), (4, 2, 1, 1, 1)]),
        (
            "mixtral-8x22b",
            sizes([4], [1], [1], expert_parallel_sizes=[1, 2]),
            [(4, 1, 1, 1, 1), (4, 1, 1, 2, 1)],
        ),
        (_GEMMA_7B, sizes([2], [2], [1, 2]), [(2, 2, 1, 1, 1), (2, 2, 1, 1, 2)]),
    ],
)
def test_a_model_has_the_candidates_of_nemo(
    model: object, arguments: dict[str, Any], expected: list[tuple[int, ...]]
) -> None:
    usual = {"global_batch_size": 512, **product(4, 8)}
    assert points(configurator(model=model, **{**usual, **arguments})) == expected


_LLAMA_LISTS = sizes([4, 8], [2, 4, 8], [1, 2, 4], context_parallel_sizes=[2], **product(4, 32))
_NEMOTRON_LISTS = sizes([2, 4], [2, 4], [1, 2], **product(4, 8))


@pytest.mark.parametrize(
    ("model", "nodes", "batch", "lists", "count", "index", "point"),
    [
        ("llama3.1-70b", 64, 512, _LLAMA_LISTS, 9, 0, (4, 2, 2, 1, 1)),
        (_NEMOTRON_15B, 16, 128, _NEMOTRON_LISTS, 6, 0, (2, 2, 1, 1, 1)),
        (_NEMOTRON_15B, 8, 128, sizes([1, 2, 4], [1, 2], [1, 2]), 12, 4, (2, 1, 1, 1, 1)),
    ],
)
def test_a_fine_tuning_has_the_candidates_of_nemo(
    model: object,
    nodes: int,
    batch: int,
    lists: dict[str, Any],
    count: int,
    index: int,
    point: tuple[int, ...],
) -> None:
    asked = configurator(
        mode="finetune", model=model, num_nodes=nodes, global_batch_size=batch, **lists
    )
    found = points(asked)
    assert (len(found), found[index]) == (count, point)


def test_a_candidate_differs_from_the_base_in_its_degrees_and_bounds() -> None:
    bounds = {"max_steps_per_run": 20, "max_minutes_per_run": 90, "global_batch_size": 512}
    found = configurator(model="llama3-8b", **bounds, **sizes([2], [1], [4]))
    ((name, config),) = found.generate_configs()[1].items()
    assert name == "llama_8b_16nodes_tp_2_pp_1_cp_1_ep_1_mbs_4_vp_None"
    strategy, data = config["trainer"]["strategy"], config["data"]
    assert strategy["tensor_model_parallel_size"] == 2
    assert (data["micro_batch_size"], data["global_batch_size"]) == (4, 512)
    assert config["trainer"]["max_steps"] == 20
    assert config["trainer"]["max_time"] == "00:01:30:00"
    assert config["log"]["log_dir"] == f"logs/{name}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"model": "llama3-8b", "tensor_parallel_sizes": [11], "global_batch_size": 512},
            "No candidate for llama of 8 B",
        ),
        (
            {"model": "gpt3_5b", "num_nodes": 20, "seq_length": 2048, "global_batch_size": 2048},
            "a global batch of 2048",
        ),
    ],
)
def test_what_leaves_no_candidate_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configurator(**arguments)


def test_all_parameters_of_the_guide_are_taken() -> None:
    """Required and optional arguments in NVIDIA's guide to the Auto Configurator of NeMo 2.0."""
    data: dict[str, Any] = {
        "data_paths": ["30", "data/books", "70", "data/web"],
        "tokenizer_path": "t.model",
    }
    lists = sizes([1, 2], [1, 2], [1, 2], context_parallel_sizes=[1, 2], expert_parallel_sizes=[1])
    found = AutoConfigurator(
        SimpleNamespace(model="llama3-8b", num_nodes=4, seq_length=8192),
        "logs",
        num_nodes=2,
        global_batch_size=64,
        **data,
        **lists,
        **product(2, 4),
    )
    base, candidates = found.generate_configs()
    assert base["trainer"]["num_nodes"] == 2, "an argument wins over the recipe"
    assert base["data"]["paths"] == data["data_paths"]
    assert base["data"]["tokenizer_path"] == "t.model"
    assert {(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2)} == {
        point[:3] for point in points(found)
    }
    assert len(candidates) == 12


def test_a_yaml_file_of_ours_is_a_recipe(tmp_path: Path) -> None:
    document = {
        "family": "llama",
        "model": {"config": {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4}},
        "trainer": {"num_nodes": 1, "devices": 2},
        "data": {"global_batch_size": 8, "seq_length": 2048, "own": "kept"},
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(document))
    base, candidates = AutoConfigurator(file, tmp_path).generate_configs()
    assert base["data"]["own"] == "kept"
    assert base["model"]["config"]["hidden_size"] == 64
    assert candidates


_HUGGING_FACE = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    ("model", "has"),
    [
        (_HUGGING_FACE, {"num_layers": 2, "ffn_hidden_size": 96, "vocab_size": 1000}),
        (
            {**_NEMOTRON_15B, "num_query_groups": 8, "rotary_percent": 0.5},
            {"num_query_groups": 8, "rotary_percent": 0.5},
        ),
    ],
    ids=["Hugging Face's names", "numbers beside the shape"],
)
def test_a_mapping_is_a_model(model: dict[str, Any], has: dict[str, object]) -> None:
    found = configurator(model=model, num_nodes=1, gpu_memory_gb=141)
    assert found.generate_configs()[0]["model"]["config"].items() >= has.items()


def test_what_nobody_gave_is_said() -> None:
    notes = AutoConfigurator(path_to_logs="logs", model="llama3-8b").notes
    assert notes[0] == ("Not given, so assumed: num_nodes 1, gpus_per_node 8, seq_length 2048.")


@pytest.mark.parametrize(
    ("model", "nodes", "batch", "note"),
    [
        ("GPTConfig126M", 16, 256, "No global batch was given"),
        ("GPTConfig2B", 16, 1024, "No global batch was given"),
        ("GPTConfig5B", 16, 2048, "No global batch was given"),
        ("gpt3_5b", 20, 2080, "2048 does not divide over 160 GPUs"),
    ],
)
def test_an_unset_global_batch_is_that_of_nemo2(
    model: str, nodes: int, batch: int, note: str
) -> None:
    found = configurator(model=model, num_nodes=nodes, seq_length=2048, num_tokens_in_b=300)
    base, _ = found.generate_configs()
    assert base["data"]["global_batch_size"] == batch
    assert base["trainer"]["max_steps"] == int(300e9 / (2048 * batch))
    assert any(note in one for one in found.notes)


def test_a_size_can_be_calculated_for_the_days() -> None:
    work = {"num_nodes": 20, "seq_length": 2048, "num_tokens_in_b": 300, "vocab_size": 51200}
    found = configurator(
        recipe={"family": "gpt3"}, **work, max_training_days=5, calculate_model_size=True
    )
    base, candidates = found.generate_configs()
    assert next(iter(candidates)).startswith("gpt3_4.03b_20nodes_")
    assert base["model"]["config"]["num_layers"] == 32


def test_bert_without_a_size_in_its_name_is_counted() -> None:
    model = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "class": "BertModel"}
    found = configurator(model=model, seq_length=512, global_batch_size=256, vocab_size=30522)
    assert next(iter(found.generate_configs()[1])).startswith("bert_0.1")


@pytest.mark.parametrize("model", ["t5_3b", "bert_4b"])
def test_samples_that_nemo2_does_not_take_have_no_batch_of_its(model: str) -> None:
    found = configurator(model=model, num_nodes=20, gpus_per_node=8)
    (said,) = (note for note in found.notes if "No table has a batch" in note)
    assert said.startswith("No global batch was given")
    assert "as NeMo 2.0 has" not in said
    assert any("its rules are for at most 2048 tokens" in note for note in found.notes)
    given = configurator(model=model, num_nodes=20, gpus_per_node=8, global_batch_size=320)
    assert not any("No table has a batch" in note for note in given.notes)


@pytest.mark.parametrize(
    ("model", "sequence", "memory_gb"),
    [("qwen_2.61b", 8192, 80), ("llama_3b", 16384, 80), ("gemma_7b", 4096, 40)],
)
def test_recommend_and_the_interface_of_nemo2_have_one_batch(
    model: str, sequence: int, memory_gb: int
) -> None:
    family, _, size = model.rstrip("b").partition("_")
    asked = ("--family", family, "--model-size", size, "--seq", str(sequence), "--gpus", "128")
    further = ("--tflops-per-gpu", "140", "--tokens", "1400B", "--gpu-memory-gb", str(memory_gb))
    told = json.loads("".join(recommend([*asked, *further, "--json"])))
    base, _ = configurator(
        model=model, seq_length=sequence, gpu_memory_gb=memory_gb
    ).generate_configs()
    assert base["data"]["global_batch_size"] == told["model"]["global_batch"]


def test_nemotron3_8b_has_a_virtual_stage_for_each_layer() -> None:
    lists = sizes([1], [4], [1, 2], **product(4, 8))
    found = configurator(model=_NEMOTRON_8B, global_batch_size=512, **lists)
    assert [name.rpartition("_vp_")[2] for name in found.generate_configs()[1]] == ["8", "8"]


def test_an_object_built_like_nemo_s_recipes_is_one() -> None:
    class Llama3Config70B:
        num_layers, hidden_size, num_attention_heads, ffn_hidden_size = 80, 8192, 64, 28672

    recipe = SimpleNamespace(
        model=SimpleNamespace(config=Llama3Config70B()),
        trainer=SimpleNamespace(num_nodes=64, devices=8),
        data=SimpleNamespace(global_batch_size=512, seq_length=4096),
    )
    found = AutoConfigurator(recipe, "logs")
    names = list(found.generate_configs()[1])
    assert all(name.startswith("llama_70b_64nodes_") for name in names)
