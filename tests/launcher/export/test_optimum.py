from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hjson
import pytest
import yaml

from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Layout,
    Offload,
    Precision,
    RawConfig,
    Recompute,
    States,
    resolve,
)
from autoconf_launch.launcher.export import Optimum, export_optimum
from autoconf_launch.launcher.exporters import LAYOUT_EXPORTERS
from autoconf_launch.launcher.spelling import parse_toml

DATA = Path(__file__).parents[2] / "data" / "dialects" / "export"
SHARDED = Optimum(
    name="sharded",
    candidate=Candidate(
        layout=Layout(
            data_parallel=8,
            zero_stage=3,
            micro_batch=4,
            accumulation=2,
            recompute=Recompute.FULL,
            offload=Offload.PARAMETERS,
        ),
        extras=(("overlap_comm", True), ("blocks_per_unit", 2)),
    ),
    precision=Precision.BF16,
)
SPLIT = Optimum(
    name="split",
    candidate=Candidate(
        layout=Layout(
            data_parallel=2,
            tensor_parallel=2,
            pipeline_parallel=4,
            virtual_pipeline=2,
            zero_stage=1,
            micro_batch=2,
            accumulation=16,
            recompute=Recompute.SELECTIVE,
            sequence_parallel=True,
        )
    ),
    nodes=2,
    precision=Precision.BF16,
)
PLAIN = Optimum(name="plain", candidate=Candidate(layout=Layout(micro_batch=3)))


@pytest.mark.parametrize("optimum", [SHARDED, SPLIT], ids=lambda optimum: optimum.name)
@pytest.mark.parametrize("framework", LAYOUT_EXPORTERS)
def test_what_is_exported_is_as_the_golden_file_says(framework: str, optimum: Optimum) -> None:
    assert (
        export_optimum(optimum, framework).text
        == (DATA / f"{framework}_{optimum.name}.txt").read_text()
    )


@pytest.mark.parametrize("framework", [name for name in LAYOUT_EXPORTERS if name != "native"])
def test_what_cannot_be_expressed_is_said_in_the_text_too(framework: str) -> None:
    exported = export_optimum(SHARDED, framework)
    assert "blocks_per_unit = 2" in "".join(exported.left_out)
    for sentence in exported.left_out:
        assert f"not expressed: {sentence}\n" in exported.text


@pytest.mark.parametrize("framework", ["torchtitan", "megatron", "hf_trainer", "nemo1", "nemo2"])
def test_a_plain_layout_is_expressed_whole(framework: str) -> None:
    assert export_optimum(PLAIN, framework).left_out == ()


def test_each_format_can_be_read_by_its_parser() -> None:
    for framework in ("accelerate", "lightning", "nemo1"):
        assert isinstance(yaml.safe_load(export_optimum(SHARDED, framework).text), dict)
    assert hjson.loads(export_optimum(SHARDED, "deepspeed").text)["train_batch_size"] == 64
    assert json.loads(export_optimum(PLAIN, "deepspeed").text)["train_batch_size"] == 3
    titan = parse_toml(export_optimum(SPLIT, "torchtitan").text)
    assert titan.get(("parallelism", "tensor_parallel_degree")) == 2
    compile(export_optimum(SPLIT, "nemo2").text, "recipe.py", "exec")


def test_formats_of_states_are_written_where_a_framework_has_them() -> None:
    half = replace(PLAIN, states=States.BF16)
    titan = parse_toml(export_optimum(half, "torchtitan").text)
    assert titan.get(("training", "dtype")) == "bfloat16"
    moments = export_optimum(replace(PLAIN, states=States.BF16_MOMENTS), "megatron").text
    assert "--use-precision-aware-optimizer\n--exp-avg-dtype bf16\n" in moments
    assert "precision-aware" not in export_optimum(PLAIN, "megatron").text


def test_an_unknown_framework_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="--to is 'megatronlm'; did you mean 'megatron'"):
        export_optimum(PLAIN, "megatronlm")


def test_our_own_runtime_reads_its_file_as_the_same_layout() -> None:
    layout = replace(SHARDED.layout, offload=Offload.NONE)
    exported = export_optimum(
        replace(SHARDED, candidate=replace(SHARDED.candidate, layout=layout)), "native"
    )
    resolved = resolve(RawConfig(hjson.loads(exported.text)), world_size=8)
    assert resolved.layout == layout
    assert "offload = parameters" in "".join(export_optimum(SHARDED, "native").changed)


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("megatron", ("--recompute-method block\n--recompute-num-layers 6\n",)),
        ("nemo2", ("recompute_method = 'block'", "recompute_num_layers = 6")),
    ],
)
def test_some_layers_of_a_stage_are_recomputed_as_a_block(
    framework: str, words: tuple[str, ...]
) -> None:
    some = (("recompute_layers", 6),)
    layout = Layout(pipeline_parallel=2, accumulation=4, recompute=Recompute.FULL)
    plain = replace(PLAIN, candidate=Candidate(layout=layout, extras=some))
    exported = export_optimum(plain, framework)
    assert exported.left_out == ()
    assert all(word in exported.text for word in words)
    virtual = replace(plain, candidate=replace(plain.candidate, layout=_virtual(layout)))
    assert "each virtual stage" in "".join(export_optimum(virtual, framework).changed)


def _virtual(layout: Layout) -> Layout:
    return replace(layout, virtual_pipeline=2)


def test_what_a_user_can_add_is_not_a_change() -> None:
    layout = Layout(data_parallel=2, zero_stage=2, recompute=Recompute.FULL)
    optimum = Optimum(name="row", candidate=Candidate(layout=layout))
    exported = export_optimum(optimum, "deepspeed")
    assert len(exported.left_out) == 1
    assert exported.changed == ()
    split = replace(optimum, candidate=Candidate(layout=replace(layout, context_parallel=2)))
    assert "context_parallel = 2" in export_optimum(split, "deepspeed").changed[0]
