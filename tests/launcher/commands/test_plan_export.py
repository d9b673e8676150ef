"""``plan --export``: rows of the table as files of frameworks."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import RawConfig, resolve
from autoconf_launch.launcher.spelling import parse_toml

from .verb import Run

WORK = ("--model", "llama3.1-8b", "--seq", "8k", "--global-batch", "64", "--cluster", "2x8xH100")


def row_of(plan: Run, wanted: Any, *flags: str) -> tuple[int, dict[str, Any]]:
    """Number and layout of the first row that is wanted."""
    rows = plan(*WORK, "--json", *flags).document["best"]
    found = ((n, row["candidate"]) for n, row in enumerate(rows, start=1))
    return next((n, layout) for n, layout in found if wanted(layout))


def is_pipeline(layout: dict[str, Any]) -> bool:
    return bool(layout["pipeline_parallel"] > 1 and layout["zero_stage"] < 2)


def test_a_row_is_written_for_several_frameworks(plan: Run, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    number, layout = row_of(plan, is_pipeline)
    ran = plan(*WORK, "--export", "megatron,nemo2", "--row", str(number), "-o", str(out))
    assert ran.code == 0
    assert f"Row {number} is written to {out}/layout.megatron.args.\n" in ran.out
    text = (out / "layout.megatron.args").read_text()
    stages = layout["pipeline_parallel"]
    assert f"--pipeline-model-parallel-size {stages}\n" in text
    assert "--seq-length 8192\n" in text
    assert "--bf16\n" in text
    recipe = (out / "layout.nemo2.py").read_text()
    assert f"recipe.trainer.strategy.pipeline_model_parallel_size = {stages}\n" in recipe
    assert "recipe.trainer.num_nodes = 2\n" in recipe


def test_the_first_row_is_exported_where_none_is_named(plan: Run, tmp_path: Path) -> None:
    best = plan(*WORK, "--json").document["best"][0]["candidate"]
    ran = plan(*WORK, "--export", "deepspeed,torchtitan", "-o", str(tmp_path), "--json")
    assert ran.document["exported"] == [
        str(tmp_path / name) for name in ("layout.deepspeed.json", "layout.torchtitan.toml")
    ]
    titan = parse_toml((tmp_path / "layout.torchtitan.toml").read_text())
    assert titan.get(("parallelism", "data_parallel_shard_degree")) == best["data_parallel"]


@pytest.mark.slow
def test_our_own_configuration_is_of_the_first_row_that_runs_here(
    plan: Run, tmp_path: Path
) -> None:
    ran = plan(*WORK, "--top", "0", "--export", "native", "-o", str(tmp_path), "--json")
    rows, number = ran.document["best"], ran.document["exported_row"]
    assert [row["runnable"] for row in rows].index(True) == number - 1
    document = RawConfig(json.loads((tmp_path / "layout.native.json").read_text()))
    found = resolve(document, world_size=16)
    assert found.optimizer is not None
    wanted = rows[number - 1]["candidate"]
    assert found.layout.tensor_parallel == wanted["tensor_parallel"]
    assert found.layout.zero_stage == wanted["zero_stage"]
    assert found.layout.global_batch == 64


def test_only_layouts_that_run_here_are_ranked_where_that_is_asked_for(plan: Run) -> None:
    ran = plan(*WORK, "--runnable", "--json")
    assert {row["runnable"] for row in ran.best} == {True}
    assert ran.document["rejected"]["trainer_offload"] > 0


@pytest.mark.parametrize("framework", ["deepspeed", "torchtitan"])
def test_a_row_that_a_framework_cannot_express_is_refused_with_the_reason(
    plan: Run, tmp_path: Path, framework: str
) -> None:
    number, _ = row_of(plan, is_pipeline)
    ran = plan(*WORK, "--export", framework, "--row", str(number), "-o", str(tmp_path))
    assert (ran.code, ran.is_one_line, list(tmp_path.iterdir())) == (2, True, []), ran.err
    assert f"Row {number} cannot be exported to {framework} (" in ran.err
    assert "--row 1 can be." in ran.err


def test_a_row_on_a_mixed_cluster_is_a_job_of_its_nodes(plan: Run, tmp_path: Path) -> None:
    words = (
        *("--model", "gpt2-xl", "--seq", "1k", "--global-batch", "64"),
        *("--cluster", "1x8xA100-SXM-40GB+3x4xA10G-24GB", "--export", "megatron"),
    )
    rows = plan(*words, "-o", str(tmp_path), "--json").document
    assert [Path(path).name for path in rows["exported"]] == [
        "layout.megatron.args",
        "layout.megatron.torchrun.sh",
        "layout.megatron.docker.sh",
        "layout.megatron.sbatch",
    ]
    order = rows["best"][rows["exported_row"] - 1]["order"]
    script = (tmp_path / "layout.megatron.torchrun.sh").read_text()
    assert [f"{rank}) # {name}" for rank, name in enumerate(order)] == [
        line for line in script.splitlines() if ") # " in line
    ]


def test_the_first_row_that_some_megatron_runs_is_exported(plan: Run, tmp_path: Path) -> None:
    words = ("--preset", "fasop/T5-heterogeneous", "--precision", "bf16", "--export", "megatron")
    ran = plan(*words, "-o", str(tmp_path))
    assert ran.code == 0
    assert "cannot be exported; of row 1: FASOP's fork" in ran.out
    assert "without bf16" in ran.out
    assert "# Runs on Megatron-LM" in (tmp_path / "layout.megatron.args").read_text()


def test_uneven_virtual_stages_are_exported_as_megatrons_layout(plan: Run, tmp_path: Path) -> None:
    shape = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 61}
    sizes = {"num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 32000}
    model = tmp_path / "config.json"
    model.write_text(json.dumps({**shape, **sizes, "max_position_embeddings": 4096}))
    size = ("--model", str(model), "--seq", "2k", "--global-batch", "64")
    work = (*size, "--cluster", "8xA100", "--trainer", "megatron", "--top", "0")
    rows = plan(*work, "--json").document["best"]
    number = next(
        number
        for number, row in enumerate(rows, start=1)
        if row["candidate"]["virtual_pipeline"] == 4 and row["candidate"]["pipeline_parallel"] == 4
    )
    ran = plan(*work, "--export", "megatron", "--row", str(number), "-o", str(tmp_path))
    assert ran.code == 0, ran.err
    text = (tmp_path / "layout.megatron.args").read_text()
    (line,) = (one for one in text.splitlines() if "pipeline-model-parallel-layout" in one)
    stages = line.split()[-1].strip("'\"").split("|")
    assert len(stages) == 16
    assert (stages[0][0], stages[-1][-1]) == ("E", "L")
    assert sum(stage.count("t") for stage in stages) == 61
    assert "virtual" not in text
