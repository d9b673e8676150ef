"""Every spelling exists in the packages that are installed here, read as text and not imported."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from autoconf_launch.launcher.dialects import (
    accelerate,
    deepspeed,
    lightning,
    megatron,
    torchtitan,
)
from autoconf_launch.launcher.dialects import hf_deepspeed as hf_trainer


@cache
def text_of(package: str, pattern: str = "*.py") -> str:
    """The source of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    folders = [Path(folder) for folder in spec.submodule_search_locations]
    files = [path for folder in folders for path in folder.rglob(pattern)]
    return "\n".join(path.read_text(errors="replace") for path in files)


def assert_known(names: set[str], text: str) -> None:
    missing = {name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)}
    assert missing == set()


def test_arguments_of_transformers() -> None:
    text = text_of("transformers", "training_args.py")
    later = {flag.lstrip("-") for flag, _ in hf_trainer.ADDED}
    flags = {hf_trainer.BATCH_FLAG, hf_trainer.STEPS_FLAG, hf_trainer.RECOMPUTE_FLAGS[0]}
    names = {flag.lstrip("-") for flag in flags | {hf_trainer.FSDP}}
    names |= {row[0].lstrip("-") for row in hf_trainer.IN_TRIALS} - {"evaluation_strategy"}
    names |= {flag.lstrip("-") for flag in hf_trainer.NOT_IN_TRIALS}
    assert_known(names - later, text)


def test_variables_and_flags_of_accelerate() -> None:
    text = text_of("accelerate")
    assert_known(
        {accelerate.ACCUMULATION_VARIABLE, accelerate.USE_FSDP, accelerate._PRECISION}, text
    )
    assert_known({accelerate.DEEPSPEED_STAGE}, text)
    assert_known({flag.lstrip("-") for flag in accelerate.LAUNCH_VARIABLES}, text)


def test_settings_of_lightning() -> None:
    text = text_of("lightning")
    later = {"deepspeed_stage_1_offload"}
    strategies = {name for name, _ in lightning._STAGES if "_find_unused" not in name} - later
    assert_known({lightning._ACCUMULATION, lightning._STRATEGY, *strategies}, text)
    assert "_defaults_from_env_vars" in text


def test_keys_of_deepspeed() -> None:
    text = text_of("deepspeed")
    assert_known(set(deepspeed.ZERO_KEYS), text)


def test_options_of_torchtitan() -> None:
    text = text_of("torchtitan")
    options = {torchtitan.LOCAL_BATCH_KEY, torchtitan.GLOBAL_BATCH_KEY, torchtitan.STEPS}
    options |= {torchtitan.REPLICATE, torchtitan.SHARD, torchtitan.RESHARD, torchtitan.OFFLOAD}
    options |= {torchtitan.PIPELINE_MICRO_BATCH, torchtitan.SCHEDULE}
    options |= set(torchtitan.TITAN_DEGREES.values()) - {
        torchtitan.TITAN_DEGREES["expert_parallel"]
    }
    assert_known({option.rpartition(".")[2] for option in options}, text)


def test_fields_of_megatron_core() -> None:
    text = text_of("megatron.core") if importlib.util.find_spec("megatron") else ""
    if not text:
        pytest.skip("megatron-core is not installed")
    flags = {*megatron.MEGATRON_DEGREES.values(), megatron.SEQUENCE_PARALLEL, megatron.GRANULARITY}
    flags |= {megatron.METHOD, megatron.NUM_LAYERS, megatron.LAYOUT, megatron.SHARDING}
    flags |= {megatron.DISTRIBUTED_OPTIMIZER, megatron.OPTIMIZER_OFFLOAD}
    assert_known({flag.lstrip("-").replace("-", "_") for flag in flags}, text)
