import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoconf_launch.autotuner.space import ALIASES, AutotuningSettings
from autoconf_launch.core import RUNTIME_KNOBS, SPELLED, ConfigError, RawConfig, resolve
from autoconf_launch.core.config_keys import TOP_LEVEL
from autoconf_launch.launcher import cli
from autoconf_launch.tuning_spaces import (
    SCHEMAS,
    cluster_of_document,
    cluster_template,
    schema_text,
)

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(
    [
        *ROOT.glob("examples/*/*.json"),
        *ROOT.glob("tests/end_to_end/**/*config*.json"),
        *ROOT.glob("benchmarks/**/*config*.json"),
    ]
)


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema_text(name))
    return found


def valid(name: str, document: object) -> bool:
    """True if the schema has nothing to say of it."""
    return not list(jsonschema.Draft202012Validator(schema(name)).iter_errors(document))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_the_schema_has_every_key_and_default_that_is_read() -> None:
    properties = schema("config")["properties"]
    assert properties.keys() == TOP_LEVEL | {"$schema"}
    for knob in (*SPELLED.values(), *RUNTIME_KNOBS.values()):
        section = properties
        for key in knob.path[:-1]:
            opened = section[key].get("anyOf", [section[key]])
            section = opened[0]["properties"]
        assert knob.path[-1] in section, knob.key
    section = properties["autotuning"]
    assert section["properties"].keys() == AutotuningSettings.model_fields.keys() | ALIASES.keys()
    assert section["additionalProperties"] is False
    properties = schema("config")["properties"]["autotuning"]["properties"]
    plain = AutotuningSettings().model_dump()
    assert {name: properties[name].get("default") for name in plain} == plain
    named = RawConfig({"$schema": "config.schema.json", "train_micro_batch_size_per_gpu": 2})
    assert resolve(named, world_size=2) == resolve(named.without(("$schema",)), world_size=2)


def describe(section: dict[str, Any], where: str = "") -> list[str]:
    """Properties without a description."""
    named = {f"{where}.{name}": inner for name, inner in section.get("properties", {}).items()}
    return [
        *(where for where, inner in named.items() if "description" not in inner),
        *(one for where, inner in named.items() for one in describe(inner, where)),
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_is_described(name: str) -> None:
    found = schema(name)
    assert not describe(found) + describe(found.get("$defs", {}).get("NodeGroup", {}))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_is_valid(path: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema("config"))
    assert not list(validator.iter_errors(json.loads(path.read_text())))


def test_every_example_and_template_is_valid() -> None:
    assert valid("cluster", yaml.safe_load(cluster_template()))
    assert len(CONFIGS) >= 2


BROKEN_CONFIGS: tuple[dict[str, Any], ...] = (
    {"train_micro_batch_size_per_gpu": 0},
    {"train_micro_batch_size_per_gpu": []},
    {"train_micro_batch_size_per_gpu": "all"},
    {"train_batch_size": [8, 16]},
    {"gradient_clipping": -1},
    {"zero_optimization": {"stage": 4}},
    {"zero_optimization": "some"},
    {"zero_optimization": {"stage": 2, "blocks_per_unit": 0}},
    {"zero_optimization": {"stage": 3, "reshard_after_forward": False}},
    {"bf16": {"enabled": "yes"}},
    {"activation_checkpointing": {"mode": "everything"}},
    {"parallelism": {"tensors": 2}},
    {"optimizer": {"params": {"lr": 0.1}}},
    {"autotuning": {"tuner": "random"}},
    {"autotuning": {"effort": "huge"}},
    {"autotuning": {"seed": -1}},
    {"autotuning": []},
)
CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"$schema": "config.schema.json"},
    {"train_micro_batch_size_per_gpu": [1, 4, 16], "gradient_accumulation_steps": "auto"},
    {"zero_optimization": "all"},
    {"parallelism": "all"},
    {"parallelism": {"tensor": [1, 2], "sequence_parallel": [False, True]}},
    {"parallelism": {"tensor": "all"}},
    {"zero_optimization": {"stage": [2, 3], "offload_param": {"device": "cpu"}}},
    {"activation_checkpointing": {"mode": ["none", "full"]}},
    {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}},
    {"steps_per_print": 10, "my_own": {"key": 1}},
    {"autotuning": {"enabled": True, "effort": "quick", "model_info": {"num_params": 100}}},
)


@pytest.mark.parametrize("document", CONFIGURATIONS, ids=str)
def test_a_configuration_is_valid(document: dict[str, Any]) -> None:
    assert valid("config", document)


@pytest.mark.parametrize("document", BROKEN_CONFIGS, ids=str)
def test_a_broken_configuration_is_not_valid(document: dict[str, Any]) -> None:
    assert not valid("config", document)


GROUP = {"gpu": "H100-SXM-80GB"}
CLUSTERS: tuple[dict[str, Any], ...] = (
    {"nodes": [GROUP]},
    {"$schema": "cluster.schema.json", "nodes": [{"gpu": "rtx 4090", "gpus": 2}]},
    {"nodes": [{**GROUP, "memory_gib": 64, "link_gb_per_s": 450.5, "usd_per_hour": None}]},
)
BROKEN_CLUSTERS: tuple[dict[str, Any], ...] = (
    {},
    {"nodes": []},
    {"nodes": GROUP},
    {"nodes": [GROUP], "usd_per_hour": 8},
    {"nodes": [{"count": 2}]},
    {"nodes": [{"gpu": 8}]},
    {"nodes": [{**GROUP, "count": 0}]},
    {"nodes": [{**GROUP, "gpus": "8"}]},
    {"nodes": [{**GROUP, "gpus": True}]},
    {"nodes": [{**GROUP, "memory_gib": 0}]},
    {"nodes": [{**GROUP, "network_gb_per_s": -1}]},
    {"nodes": [{**GROUP, "cuont": 2}]},
)


@pytest.mark.parametrize("document", CLUSTERS, ids=str)
def test_a_cluster_that_is_read_is_valid(document: dict[str, Any]) -> None:
    assert cluster_of_document(RawConfig(document)).nodes
    assert valid("cluster", document)


@pytest.mark.parametrize("document", BROKEN_CLUSTERS, ids=str)
def test_a_cluster_that_is_refused_is_not_valid(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        cluster_of_document(RawConfig(document))
    assert not valid("cluster", document)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_what_is_shipped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([f"--schema={name}"]) == cli.OK
    assert json.loads(capsys.readouterr().out) == schema(name)


@pytest.mark.parametrize("words", [["--schema"], ["--schema", "confg"], ["--schema", "a", "b"]])
def test_another_schema_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == cli.USAGE
    assert capsys.readouterr().err.count("\n") == 1
