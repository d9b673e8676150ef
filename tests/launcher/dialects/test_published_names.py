"""Every spelling exists in the packages that are installed here, read as text and not imported."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from autoconf_launch.core import EXTRAS, Candidate, ConfigError, Layout
from autoconf_launch.launcher.dialects import (
    accelerate,
    choose_dialect,
    deepspeed,
    lightning,
    megatron,
    torchtitan,
)
from autoconf_launch.launcher.dialects import hf_deepspeed as hf_trainer
from autoconf_launch.launcher.export import Optimum, export_optimum
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import Rendered

from .sources import say_of, script


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


AUTOTUNE = "max-autotune-no-cudagraphs"
MODES = ("off", "default", AUTOTUNE)
TITAN = NamedFile(
    position=1, flag="--job.config_file", path="c.toml", text="[training]\nlocal_batch_size = 2\n"
)
TRAINERS = {
    "hf_trainer": script(
        "--per_device_train_batch_size=2",
        "--torch_compile=true",
        text="from transformers import HfArgumentParser, Trainer\nTrainer(1)",
    ),
    "accelerate": script(
        "--batch_size=2", text="from accelerate import Accelerator\nAccelerator()"
    ),
    "torchtitan": script("--job.config_file", "c.toml", files=(TITAN,)),
}
ROWS = [(words.dialect, knob) for knob in EXTRAS for words in knob.elsewhere]


def with_mode(name: str, source: ScriptSource, before: str, after: str) -> Rendered:
    """A candidate with another mode, after the mode of the user's launch is checked."""
    dialect = choose_dialect(source).dialect
    assert dialect.name == name
    baseline = dialect.read(source, world_size=1).baseline
    assert dict(baseline.extras)["compile_mode"] == before
    candidate = dataclasses.replace(baseline, extras=(("compile_mode", after),))
    rendered = dialect.render(candidate, source, "trial/c.json")
    made = dataclasses.replace(
        source,
        script_args=rendered.script_args,
        environment=(*source.environment, *rendered.environment),
        files=tuple(
            dataclasses.replace(f, text=rendered.files[0].text) if rendered.files else f
            for f in source.files
        ),
    )
    assert dict(dialect.read(made, world_size=1).baseline.extras) == {"compile_mode": after}
    return rendered


def listing(name: str, *modes: str) -> ScriptSource:
    return say_of(TRAINERS[name], knobs=(("compile_mode", modes),))


@pytest.mark.parametrize("mode", MODES)
def test_trainer_has_the_mode_and_a_switch(mode: str) -> None:
    arguments = with_mode("hf_trainer", listing("hf_trainer", *MODES), "default", mode).script_args
    assert ("--torch_compile_mode" in " ".join(arguments)) == (mode == AUTOTUNE)
    named = {word.partition("=")[0] for word in arguments}
    assert ("--torch_compile" in named) == (mode != "off")


@pytest.mark.parametrize("mode", [AUTOTUNE, "default"])
def test_accelerate_has_variables(mode: str) -> None:
    rendered = with_mode("accelerate", listing("accelerate", *MODES), "off", mode)
    dynamo = dict(rendered.environment)
    assert dynamo["ACCELERATE_DYNAMO_MODE"] == mode
    assert dynamo["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"


def test_accelerate_is_turned_off_by_its_backend() -> None:
    source = listing("accelerate", *MODES)
    given = (("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"), ("ACCELERATE_DYNAMO_MODE", AUTOTUNE))
    source = dataclasses.replace(source, environment=given)
    choice = choose_dialect(source).dialect.read(source, world_size=1).choices
    assert (AUTOTUNE, "off", "default") in [one.values for one in choice]


def test_torchtitan_has_a_switch_alone() -> None:
    rendered = with_mode("torchtitan", listing("torchtitan", "off", "default"), "off", "default")
    assert "[compile]\nenable = true" in rendered.files[0].text
    with pytest.raises(ConfigError, match=r"compile\.enable can only say off or default"):
        with_mode("torchtitan", listing("torchtitan", AUTOTUNE), "off", AUTOTUNE)


def test_a_mode_that_the_compiler_lacks_is_refused() -> None:
    source = listing("hf_trainer", "fastest")
    with pytest.raises(ConfigError, match="compile_mode is 'fastest', but must be off or def"):
        choose_dialect(source).dialect.read(source, world_size=1)


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("hf_trainer", f"--torch_compile_mode {AUTOTUNE}\n--torch_compile\n"),
        ("accelerate", f"  dynamo_backend: INDUCTOR\n  dynamo_mode: {AUTOTUNE}\n"),
        ("native", f'"compile_mode": "{AUTOTUNE}"'),
    ],
)
def test_an_export_has_the_mode(framework: str, text: str) -> None:
    optimum = optimum_with(compile_mode=AUTOTUNE)
    exported = export_optimum(optimum, framework)
    lines = {line.strip() for line in text.splitlines()}
    assert lines <= {line.strip().rstrip(",") for line in exported.text.splitlines()}
    assert exported.changed == ()


def test_torchtitan_exports_the_default_mode_only() -> None:
    exported = export_optimum(optimum_with(compile_mode="default"), "torchtitan")
    assert "[compile]\nenable = true\n" in exported.text
    exported = export_optimum(optimum_with(compile_mode=AUTOTUNE), "torchtitan")
    assert f"compile_mode = {AUTOTUNE}" in exported.changed[0]


def test_the_buckets_of_ddp_are_exported_for_trainer() -> None:
    exported = export_optimum(optimum_with(bucket_cap_mb=100), "hf_trainer")
    assert "--ddp_bucket_cap_mb 100\n" in exported.text


def optimum_with(**extras: object) -> Optimum:
    candidate = Candidate(layout=Layout(micro_batch=2), extras=tuple(extras.items()))  # type: ignore[arg-type]
    return Optimum(name="z0", candidate=candidate)


@pytest.mark.parametrize(("name", "knob"), [row for row in ROWS if row[0] != "torchtitan"])
def test_each_word_is_in_the_installed_package(name: str, knob: object) -> None:
    package = {"hf_trainer": "transformers", "accelerate": "accelerate"}[name]
    pattern = "training_args.py" if name == "hf_trainer" else "*.py"
    text = text_of(package, pattern)
    for words in getattr(knob, "elsewhere", ()):
        for setting in (words.setting, words.switch) if words.dialect == name else ():
            assert re.search(rf"\b{setting.lstrip('-')}\b", text)
