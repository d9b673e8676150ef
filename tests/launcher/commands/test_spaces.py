from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.commands.spaces import show_spaces

RANKS = "--num_gpus=2"
CONFIG = {"gradient_accumulation_steps": 4, "zero_optimization": {"stage": [0, 2]}}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine without GPUs, and the name of a configuration in the present folder."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text(json.dumps(CONFIG))
    return "c.json"


def show(*arguments: str) -> str:
    return "\n".join(show_spaces(arguments))


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(show("--json", *arguments))
    return found


def origins(*arguments: str) -> dict[str, str]:
    """Origin of each knob's values in the first stage."""
    return {knob["name"]: knob["from"] for knob in document(*arguments)["stages"][0]["knobs"]}


def test_fast_mode_shows_stages_and_micro_batches(config: str, tmp_path: Path) -> None:
    found = document(RANKS, "--config", config)
    assert [(s["stage"], s["micro_batches"], s["combinations"]) for s in found["stages"]] == [
        (0, [1, 2, 4], 1),
        (2, [1, 2, 4], 1),
    ]
    assert found["stages_from"] == "c.json"
    assert show(RANKS, "--config", config).startswith("ZeRO stages 0, 2 (c.json), together, by ")
    (tmp_path / "script.py").write_text("")
    assert document(RANKS, "script.py", "--config", config) == found
    (tmp_path / "c.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}))
    assert show(RANKS, "--config", config).startswith("ZeRO stage 2 (c.json), by throughput ")


def test_full_mode_shows_the_shipped_lists(config: str) -> None:
    text = show(RANKS, "--fast=false", "--config", config)
    assert "zero_optimization.bucket_cap_mb            5, 25, 100   default" in text
    assert "then 9 combinations of further knobs for each of the best 3" in text


def test_a_list_of_the_configuration_tells_so(config: str, tmp_path: Path) -> None:
    zero = {"stage": 0, "bucket_cap_mb": [1, 2]}
    (tmp_path / "c.json").write_text(json.dumps({"zero_optimization": zero}))
    name = "zero_optimization.bucket_cap_mb"
    assert origins(RANKS, "--fast=false", "--config", config)[name] == "c.json"


def test_a_listed_compile_mode_is_searched_at_every_stage(config: str, tmp_path: Path) -> None:
    given = {**CONFIG, "compile_mode": ["off", "default"]}
    (tmp_path / "c.json").write_text(json.dumps(given))
    stages = document(RANKS, "--config", config)["stages"]
    assert [stage["combinations"] for stage in stages] == [2, 2]
    (row,) = [knob for knob in stages[1]["knobs"] if knob["name"] == "compile_mode"]
    assert (row["values"], row["from"]) == (["off", "default"], "c.json")


def test_a_list_of_a_tuning_space_tells_so(config: str, tmp_path: Path) -> None:
    (tmp_path / "mine.hjson").write_text("{zero_optimization: {stage: 0, bucket_cap_mb: [1]}}")
    found = origins(RANKS, "--tuning-space", "mine.hjson", "--fast=false", "--config", config)
    assert found["zero_optimization.bucket_cap_mb"] == "mine.hjson"
    assert found["zero_optimization.gradient_as_bucket_view"] == "default"


def test_a_value_of_the_command_line_tells_so(config: str, tmp_path: Path) -> None:
    mapped = {"train_micro_batch_size_per_gpu": "--bs"}
    (tmp_path / "c.json").write_text(json.dumps({"autotuning": {"arg_mappings": mapped}}))
    (tmp_path / "train.py").write_text("")
    found = origins(RANKS, "train.py", "--bs", "4", "--config", config)
    assert found == {"train_micro_batch_size_per_gpu": "command line"}


def test_without_a_configuration_the_shipped_spaces_are_shown(config: str) -> None:
    stages = document(RANKS, "--fast=false")["stages"]
    assert [stage["combinations"] for stage in stages] == [6, 12, 9, 18]


BLOCK = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {
        "stage": 1,
        "reduce_bucket_size": [5e7, 5e8],
        "allgather_bucket_size": 5e8,
    },
}


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--deepspeed", "c.json"),
        ("--dialect=deepspeed", "--config", "c.json"),
        ("--config", "c.json"),
    ],
)
def test_a_block_of_deepspeeds_documentation_shows_its_two_combinations(
    config: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / config).write_text(json.dumps(BLOCK))
    (tmp_path / "train.py").write_text("import deepspeed\ndeepspeed.initialize()\n")
    (stage,) = document(RANKS, "--fast=false", *words)["stages"]
    assert (stage["stage"], stage["combinations"]) == (1, 2)
    values = {knob["name"]: knob["values"] for knob in stage["knobs"]}
    assert values["zero_optimization.reduce_bucket_size"] == [5e7, 5e8]
    assert values["zero_optimization.allgather_bucket_size"] == [5e8]


def test_a_script_shows_its_own_knobs_and_nothing_that_is_never_searched(
    config: str, tmp_path: Path
) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\n"
    for flag, default in (("--batch-size", 4), ("--workers", 0)):
        text += f"parser.add_argument('{flag}', type=int, default={default})\n"
    (tmp_path / "plain.py").write_text(f"{text}parser.parse_args()\n")
    knob = "--knob=--workers=[0, 2]"
    words = (RANKS, "--fast=false", "--allow-global-batch-change", knob, "plain.py")
    found = document(*words)
    (stage,) = found["stages"]
    assert (found["stages_from"], stage["combinations"]) == (None, 2)
    assert {row["name"]: row["values"] for row in stage["knobs"]} == {
        "train_micro_batch_size_per_gpu": [4],
        "gradient_accumulation_steps": [1],
        "workers": [0, 2],
    }
    assert any("Using --batch-size as the micro-batch" in note for note in found["notes"])
    assert "ZeRO" not in show(*words)


def test_a_batch_that_only_a_profile_run_finds_is_not_told_as_a_fact(
    config: str, tmp_path: Path
) -> None:
    text = (
        "import argparse\nimport torch\np = argparse.ArgumentParser()\n"
        'p.add_argument("--batch_size", type=int, default=32)\n'
        'p.add_argument("--micro_batch_size", type=int, default=4)\n'
        "a = p.parse_args()\nsteps = a.batch_size // a.micro_batch_size\n"
    )
    (tmp_path / "derives.py").write_text(text)
    said = show(str(tmp_path / "derives.py"), "--micro_batch_size", "4")
    assert "A tune learns from its profile run what nothing here sets" in said
    assert "leaves only micro-batch" not in said


def test_a_batch_that_is_assumed_or_leaves_one_micro_batch_is_said(
    config: str, tmp_path: Path
) -> None:
    said = "It sets no batch, so that a micro-batch of 1 without accumulation is assumed."
    assert said not in show(RANKS, "--config", config)
    (tmp_path / "none.json").write_text('{"zero_optimization": {"stage": 1}}')
    assert said in show(RANKS, "--config", "none.json")
    (tmp_path / "c.json").write_text('{"train_micro_batch_size_per_gpu": 4}')
    assert "leaves only micro-batch 4" in show(RANKS, "--config", config)


@pytest.mark.parametrize(("strategy", "how"), [("global", "together"), ("staged", "one after")])
def test_the_order_of_exploration_is_said(tmp_path: Path, strategy: str, how: str) -> None:
    config = {"train_batch_size": 8, "autotuning": {"enabled": True, "strategy": strategy}}
    path = tmp_path / "c.json"
    path.write_text(json.dumps(config))
    text = "\n".join(show_spaces(["--config", str(path)]))
    assert f"tages are explored {how}" in text
