from __future__ import annotations

import json
from pathlib import Path

import hjson
import pytest
import yaml

from autoconf_launch.core import Candidate, ConfigError, Layout, Offload, Precision, Recompute
from autoconf_launch.launcher.export import EXPORTERS, export_optimum
from autoconf_launch.launcher.export.page import Optimum
from autoconf_launch.launcher.spelling.documents import parse_toml

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
@pytest.mark.parametrize("framework", EXPORTERS)
def test_what_is_exported_is_as_the_golden_file_says(framework: str, optimum: Optimum) -> None:
    assert (
        export_optimum(optimum, framework).text
        == (DATA / f"{framework}_{optimum.name}.txt").read_text()
    )


@pytest.mark.parametrize("framework", EXPORTERS)
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


def test_an_unknown_framework_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="--to is 'megatronlm'; did you mean 'megatron'"):
        export_optimum(PLAIN, "megatronlm")
