"""Commands of short runs: ours with its documents, Megatron-LM's, or none."""

import json
import shlex
from dataclasses import replace

import pytest

from autoconf_launch.core import Candidate, Framework, Layout, Precision, Software, Workload
from autoconf_launch.core import RawConfig as Document
from autoconf_launch.launcher.export import Optimum, RunCommand, run_command
from autoconf_launch.runtime.pretraining import build
from autoconf_launch.tuning_spaces import named_model

LAYOUT = Layout(data_parallel=4, tensor_parallel=2, zero_stage=1, accumulation=2)


def command_of(
    model: str, framework: Framework = Framework.FSDP, layout: Layout = LAYOUT, nodes: int = 1
) -> RunCommand | None:
    workload = Workload(
        model=replace(named_model(model), layers=2),
        sequence_length=512,
        global_batch=layout.global_batch,
        software=Software(framework=framework),
    )
    optimum = Optimum(
        name="run",
        candidate=Candidate(layout=layout),
        nodes=nodes,
        precision=Precision.BF16,
        sequence_length=512,
        optimizer="adamw",
    )
    return run_command(optimum, workload, 20)


@pytest.mark.parametrize("model", ["llama3.1-8b", "gpt2", "mixtral-8x7b"])
def test_ours_has_the_model_and_the_layout_in_its_words(model: str) -> None:
    found = command_of(model, layout=replace(LAYOUT, tensor_parallel=1), nodes=2)
    assert found is not None
    assert found.framework == "native"
    words = shlex.split(found.text)
    assert words[:5] == ["autoconf-launch", "--num_nodes", "2", "--num_gpus", "2"]
    base = json.loads(words[words.index("--base-config") + 1])
    config = json.loads(words[words.index("--config") + 1])
    assert base["model"]["num_layers"] == 2
    assert config["train_batch_size"] == 8
    assert config["bf16"] == {"enabled": True}


def test_its_document_builds_the_model() -> None:
    found = command_of("gpt2", layout=Layout())
    assert found is not None
    words = shlex.split(found.text)
    model = build(Document(json.loads(words[words.index("--base-config") + 1])))
    assert sum(one.numel() for one in model.parameters()) == pytest.approx(53.1e6, rel=0.02)


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("gpt3-5b", ("--num-layers 2", "--tensor-model-parallel-size 2", "--vocab-size 51199")),
        ("mixtral-8x7b", ("--num-experts 8", "--moe-router-topk 2")),
    ],
)
def test_habits_of_megatron_are_measured_by_megatron(model: str, flags: tuple[str, ...]) -> None:
    found = command_of(model, Framework.MEGATRON, nodes=2)
    assert found is not None
    assert found.framework == "megatron"
    assert found.text.startswith("torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d ")
    assert " pretrain_gpt.py " in found.text
    steps = "--train-iters 20 --eval-iters 0"
    assert all(flag in found.text for flag in (*flags, steps, "--bf16"))


@pytest.mark.parametrize("model", ["deepseek-v3", "bert-large", "t5-3b"])
def test_a_model_that_neither_trains_without_data_has_no_command(model: str) -> None:
    """Megatron-LM has mock data only for decoders."""
    found = command_of(model, Framework.MEGATRON, replace(LAYOUT, tensor_parallel=1))
    assert found is None
