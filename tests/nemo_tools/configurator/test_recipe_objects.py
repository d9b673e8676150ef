"""A recipe that is an object means what the mapping with its attributes means."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator

_RECIPE: dict[str, Any] = {
    "model": {
        "family": "llama",
        "config": {
            "num_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_query_groups": 4,
            "ffn_hidden_size": 14336,
            "init_method_std": 0.02,
            "share_embeddings_and_output_weights": True,
            "rotary_base": 500_000,
        },
    },
    "trainer": {
        "num_nodes": 2,
        "devices": 8,
        "max_steps": 99_999,
        "gradient_clip_val": 0.5,
        "strategy": {"ckpt_async_save": True},
    },
    "data": {"seq_length": 4096, "global_batch_size": 512, "num_train_samples": 7},
    "optim": {
        "config": {"lr": 3e-4, "weight_decay": 0.05, "adam_beta2": 0.99},
        "lr_scheduler": {"warmup_steps": 2000},
    },
    "log": {"ckpt": {"save_top_k": 3}},
    "resume": {"restore_config": {"path": "checkpoint"}},
    "peft": {"dim": 8, "target_modules": ["linear_qkv"]},
}
_LISTS: dict[str, Any] = {
    "tensor_parallel_sizes": [2],
    "pipeline_parallel_sizes": [1],
    "micro_batch_sizes": [1, 2],
}


def configurator(recipe: object, **arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {"path_to_logs": "logs", "mode": "finetune", "grid": "nemo", **_LISTS}
    return AutoConfigurator(recipe, **{**start, **arguments})


def as_namespaces(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_namespaces(one) for name, one in value.items()})
    return value


def test_settings_of_a_recipe_stay() -> None:
    found = configurator(_RECIPE)
    base, candidates = found.generate_configs()
    assert base["model"]["config"].items() >= _RECIPE["model"]["config"].items()
    assert base["optim"]["config"].items() >= _RECIPE["optim"]["config"].items()
    assert base["trainer"]["max_steps"] == 99_999
    assert base["trainer"]["strategy"]["ckpt_async_save"] is True
    assert base["log"]["ckpt"] == {"save_top_k": 3}
    assert base["optim"]["lr_scheduler"]["min_lr"] == 3e-5
    for one in (base, *candidates.values()):
        assert (one["peft"], one["resume"]) == (_RECIPE["peft"], _RECIPE["resume"])
    spaces = configurator(as_namespaces(_RECIPE))
    assert spaces.generate_configs() == (base, candidates)
    assert not [note for note in spaces.notes if "grid=nemo" not in note]


@dataclass
class Config:
    num_layers: int = 32
    hidden_size: int = 4096
    num_attention_heads: int = 32
    num_query_groups: int | None = None
    ffn_hidden_size: int = 11008


@dataclass
class LoRA:
    dim: int = 16


@dataclass
class Recipe:
    config: Config = field(default_factory=Config)
    peft: LoRA = field(default_factory=LoRA)
    num_nodes: int = 2
    global_batch_size: int = 64

    @property
    def model(self) -> SimpleNamespace:
        return SimpleNamespace(family="llama", config=self.config)


def test_dataclasses_are_sections_and_say_their_class_where_only_it_tells_what_they_are() -> None:
    base, _ = configurator(Recipe(), gpus_per_node=8, seq_length=4096).generate_configs()
    assert base["model"]["config"]["ffn_hidden_size"] == 11008
    assert base["model"]["config"]["num_query_groups"] == 32, "as many as heads"
    assert base["autoconf"]["model_size_in_b"] == 6.738
    assert base["peft"] == {"class": "LoRA", "dim": 16}


def test_a_configuration_of_fiddle_has_its_arguments_defaults_and_class() -> None:
    fdl: Any = pytest.importorskip("fiddle")
    recipe = fdl.Partial(
        lambda **sections: sections,
        model=fdl.Config(SimpleNamespace, family="llama", config=fdl.Config(Config)),
        trainer=fdl.Config(SimpleNamespace, num_nodes=2, devices=8),
        data=fdl.Config(SimpleNamespace, seq_length=4096, global_batch_size=64),
        peft=fdl.Config(LoRA, dim=8),
    )
    base, _ = configurator(recipe).generate_configs()
    assert base["model"]["config"]["ffn_hidden_size"] == 11008
    assert base["model"]["config"]["num_query_groups"] == 32
    assert base["peft"] == {"class": "LoRA", "dim": 8}


def test_what_is_no_data_is_left_out_and_named() -> None:
    recipe = as_namespaces(_RECIPE)
    recipe.model.config.activation_func = max
    recipe.trainer.plugins = [object()]
    found = configurator(recipe)
    assert "activation_func" not in found.generate_configs()[0]["model"]["config"]
    assert found.notes[:-1] == (
        "Excluded from the configurations, since they are not data: "
        "model.config.activation_func, trainer.plugins.0.",
    )
    mapping = {**_RECIPE, "trainer": {**_RECIPE["trainer"], "profiler": object()}}
    base, _ = configurator(mapping).generate_configs()
    assert base["trainer"]["gradient_clip_val"] == 0.5, "the section stays"


@pytest.mark.parametrize(
    ("max_steps", "found"), [(99_999, 99_999), (1000, 1000), (-1, int(300e9 / (4096 * 512)))]
)
def test_the_schedule_ends_with_the_steps_that_are_given_or_that_the_tokens_need(
    max_steps: int, found: int
) -> None:
    trainer = {**_RECIPE["trainer"], "max_steps": max_steps}
    optim = {**_RECIPE["optim"]}
    optim["lr_scheduler"] = {"warmup_steps": 2000, "class": "WarmupHoldPolicyScheduler"}
    recipe = {**_RECIPE, "trainer": trainer, "optim": optim}
    base, _ = configurator(recipe, num_tokens_in_b=300).generate_configs()
    schedule = base["optim"]["lr_scheduler"]
    assert base["trainer"]["max_steps"] == schedule["max_steps"] == found
    assert (schedule["name"], schedule["warmup_steps"]) == ("WarmupHoldPolicy", 2000)
    assert schedule["constant_steps"] == int(0.166 * found)


@pytest.mark.parametrize(
    "given",
    [
        {"trainer": {"gradient_clip_val": 0.3}},
        {"optim": {"config": {"clip_grad": 0.3}}},
    ],
)
def test_gradients_are_clipped_at_one_value(given: dict[str, Any]) -> None:
    recipe = {"model": "llama3-8b", "num_nodes": 2, "seq_length": 8192, **given}
    base, _ = configurator(recipe, global_batch_size=64).generate_configs()
    values = base["trainer"]["gradient_clip_val"], base["optim"]["config"]["clip_grad"]
    assert values == (0.3, 0.3)


def test_a_calculated_size_has_a_shape_of_its_own_whatever_the_recipe_s() -> None:
    days: dict[str, Any] = {"num_tokens_in_b": 300, "max_training_days": 5}
    found = AutoConfigurator(
        _RECIPE, "logs", **days, calculate_model_size=True, limit_search_runs=2
    )
    base, _ = found.generate_configs()
    config, size_b = base["model"]["config"], base["autoconf"]["model_size_in_b"]
    assert size_b < 1
    assert (config["num_layers"], config["hidden_size"]) != (32, 4096)
    assert config["num_attention_heads"] * config["kv_channels"] == config["hidden_size"]
    assert config["rotary_base"] == 500_000


def test_another_length_of_samples_is_the_model_s_too() -> None:
    config = {**_RECIPE["model"]["config"], "seq_length": 4096}
    recipe = as_namespaces({**_RECIPE, "model": {"family": "llama", "config": config}})
    base, _ = configurator(recipe, seq_length=8192).generate_configs()
    assert base["data"]["seq_length"] == base["model"]["config"]["seq_length"] == 8192


def test_an_object_with_the_attributes_of_a_file_of_nemo1_keeps_its_layout() -> None:
    recipe = as_namespaces(
        {
            "run": {"name": "gpt3_5b"},
            "trainer": {"num_nodes": 16, "devices": 8, "max_steps": 7},
            "exp_manager": {"create_wandb_logger": False},
            "model": {
                "num_layers": 24,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "ffn_hidden_size": 16384,
                "encoder_seq_length": 2048,
                "global_batch_size": 2048,
                "optim": {"lr": 1e-3, "sched": {"warmup_steps": 2}},
            },
        }
    )
    base, candidates = configurator(recipe).generate_configs()
    assert base["model"]["optim"] == {"lr": 1e-3, "sched": {"warmup_steps": 2}}
    assert base["trainer"]["max_steps"] == 7
    assert {one["model"]["micro_batch_size"] for one in candidates.values()} == {1, 2}
