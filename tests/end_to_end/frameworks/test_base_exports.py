"""Base configurations that the frameworks themselves build, with as many weights as we count."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.autotuner.sizing import (
    ChosenModel,
    Family,
    ModelQuestion,
    RunPlan,
    choose_model,
)
from autoconf_launch.launcher.estimates import base_document
from autoconf_launch.launcher.export import export_base
from autoconf_launch.tuning_spaces import generation_of, tables

from .conftest import script

pytestmark = pytest.mark.slow
PLAN = RunPlan(days=6.0, nodes=16, gpus_per_node=8, tokens_b=300.0)
GATED = ("llama", "mixtral", "gemma", "qwen2", "chatglm")
DECODERS = ("gpt3", "nemotron", "starcoder", *GATED)
PADDED = 128 * 1024
"""A multiple of every framework's padding, so that no row is added."""


def needs(package: str, wheel: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install {wheel}")


def choose(family: str) -> ChosenModel:
    sequence = 512 if family == "t5" else 2048
    question = ModelQuestion(
        family=Family(family), size_b=7.0, vocabulary=PADDED, sequence=sequence, gpu_memory_gb=80
    )
    return choose_model(tables(generation_of(Family(family))), question)


def built(framework: str, families: tuple[str, ...], builder: str, folder: Path) -> dict[str, int]:
    """Weights of the models that a framework makes of our exports, by name."""
    paths = []
    for family in families:
        exported = export_base(base_document(choose(family), PLAN, None), framework)
        path = folder / f"{family}_7b{exported.suffix}"
        path.write_text(exported.text)
        paths.append(str(path))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    ran = subprocess.run(
        [sys.executable, script(builder), port, *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    said = [line.split() for line in ran.stdout.splitlines() if line.startswith("weights ")]
    return {name.removesuffix("_7b"): int(count) for _, name, count in said}


@pytest.fixture(scope="module")
def by_megatron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("megatron")
    return built("megatron", (*DECODERS, "t5"), "build_megatron_core", folder)


@pytest.fixture(scope="module")
def by_nemo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return built("nemo2", (*DECODERS, "t5"), "build_nemo2", tmp_path_factory.mktemp("nemo"))


@pytest.fixture(scope="module")
def by_torchtitan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("torchtitan")
    return built("torchtitan_module", DECODERS, "build_torchtitan", folder)


@needs("megatron", "megatron-core")
@pytest.mark.parametrize("family", [*DECODERS, "t5"])
def test_megatron_core_builds_the_arguments_model(
    family: str, by_megatron: dict[str, int]
) -> None:
    assert by_megatron[family] == pytest.approx(choose(family).exact_count, rel=1e-3)


@needs("nemo", "nemo_toolkit[llm]==2.7.3 nemo_run")
@pytest.mark.parametrize("family", [*DECODERS, "t5"])
def test_nemo_2_builds_the_recipes_model(family: str, by_nemo: dict[str, int]) -> None:
    assert by_nemo[family] == pytest.approx(choose(family).exact_count, rel=1e-3)


@needs("torchtitan", "torchtitan")
@needs("triton", "triton, which torchtitan 0.3 imports")
@pytest.mark.parametrize("family", DECODERS)
def test_torchtitan_0_3_builds_the_modules_model(
    family: str, by_torchtitan: dict[str, int]
) -> None:
    assert by_torchtitan[family] == pytest.approx(choose(family).exact_count, rel=5e-3)
