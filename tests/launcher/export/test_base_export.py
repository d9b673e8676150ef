"""A base configuration in four frameworks' words, beside golden files and published names."""

from __future__ import annotations

import re
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
from autoconf_launch.tuning_spaces import generation_of, tables

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
