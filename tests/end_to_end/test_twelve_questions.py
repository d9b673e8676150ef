"""Twelve common planning questions: the first row is one to use, or the answer says what helps.

Beside each question stands what experts run. Steps and exact degrees are not asserted: they move
with every correction of the model.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import pytest

from autoconf_launch import plan
from autoconf_launch.core import Layout, Offload, Recompute
from autoconf_launch.launcher.questions import ShownPlan
from autoconf_launch.launcher.report import plan_document, plan_text

Looks: TypeAlias = Callable[[Layout], bool]
_NEMO = "github.com/NVIDIA/NeMo nemo/collections/llm/recipes"
_BRIDGE = "docs.nvidia.com/nemo/megatron-bridge/nightly/apidocs/bridge"
_SLOW = """\
nodes:
  - gpu: A100-SXM-80GB
    count: 4
    network_gb_per_s: 0.390625  # 25 Gb/s for 8 GPUs
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A training on a cluster.

    Attributes:
        experts: what they run, and where that is published.
        looks: what the first row has in common with it.
        helps: parts of the changes that the answer names if the first row does not run here.
    """

    model: str
    cluster: str
    seq: int
    global_batch: int
    experts: str
    looks: Looks
    helps: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()


QUESTIONS = {
    "Llama-3 70B on 4x8 H100": Question(
        model="meta-llama/Meta-Llama-3-70B",
        cluster="4x8xH100",
        seq=8192,
        global_batch=128,
        experts=f"TP 4, PP 4, CP 2, VPP 5 on 64: {_BRIDGE}.perf_recipes.llama.h100.llama3.html",
        looks=lambda x: x.zero_stage == 3 or x.tensor_parallel * x.pipeline_parallel >= 8,
    ),
    "Llama-2 7B on 8 A100-40GB": Question(
        model="meta-llama/Llama-2-7b-hf",
        cluster="8xA100-SXM-40GB",
        seq=4096,
        global_batch=128,
        experts="FSDP over all 8 GPUs, no other parallelism (recalled: llama-recipes)",
        looks=lambda x: x.zero_stage > 0 and x.pipeline_parallel == 1,
    ),
    "8B LoRA on one 4090": Question(
        model="meta-llama/Meta-Llama-3-8B",
        cluster="1xRTX-4090",
        seq=2048,
        global_batch=16,
        more=(("lora_rank", 16),),
        experts="micro-batch 2, activation checkpointing: github.com/pytorch/torchtune "
        "recipes/configs/llama3/8B_lora_single_device.yaml",
        looks=lambda x: x.micro_batch <= 2 and x.recompute is Recompute.FULL,
    ),
    "Mixtral 8x7B on 2x8 A100": Question(
        model="mistralai/Mixtral-8x7B-v0.1",
        cluster="2x8xA100-SXM-80GB",
        seq=4096,
        global_batch=256,
        experts=f"PP 4, VPP 8, EP 8: {_NEMO}/mixtral_8x7b.py",
        looks=lambda x: x.expert_parallel > 1,
    ),
    "DeepSeek-V3 on 256 H100": Question(
        model="deepseek-v3",
        cluster="32x8xH100",
        seq=4096,
        global_batch=1024,
        experts=f"TP 2, PP 16, EP 64 on 1,024: {_NEMO}/deepseek_v3.py",
        looks=lambda x: x.expert_parallel >= 8 and x.recompute is not Recompute.NONE,
    ),
    "Qwen3-30B-A3B on 8 H100": Question(
        model="Qwen/Qwen3-30B-A3B",
        cluster="8xH100",
        seq=4096,
        global_batch=32,
        experts=f"TP 4, PP 2, EP 4, full recomputation: {_NEMO}/qwen3_30b_a3b.py",
        looks=lambda x: x.recompute is not Recompute.NONE,
    ),
    "8B at 32k on 8 H100": Question(
        model="meta-llama/Meta-Llama-3-8B",
        cluster="8xH100",
        seq=32_768,
        global_batch=32,
        experts="CP or TP with sequence parallelism in the node (recalled: llama3_8b_16k of NeMo "
        "has TP 4, CP 2)",
        looks=lambda x: x.context_parallel * x.tensor_parallel > 1,
    ),
    "8B at 128k on 8 H100": Question(
        model="meta-llama/Meta-Llama-3-8B",
        cluster="8xH100",
        seq=131_072,
        global_batch=8,
        experts=f"TP 4, PP 2, CP 8 on 64: {_NEMO}/llama3_8b_128k.py",
        looks=lambda x: x.context_parallel * x.tensor_parallel >= 4,
    ),
    "GPT-OSS-120B on 16 H100": Question(
        model="openai/gpt-oss-120b",
        cluster="2x8xH100",
        seq=4096,
        global_batch=256,
        experts="all weights only with offload, or FSDP over two nodes: "
        "docs.axolotl.ai/docs/models/gpt-oss.html",
        looks=lambda x: x.zero_stage > 0,
        helps=("--lora-rank 16", "xH100-SXM-80GB"),
    ),
    "13B on 4x8 A100 with 25 Gb/s": Question(
        model="llama-2-13b",
        cluster=_SLOW,
        seq=4096,
        global_batch=256,
        experts="PP between nodes, all else inside them, since PP sends least: Narayanan et al. "
        "2021, arXiv:2104.04473, section 3",
        looks=lambda x: x.pipeline_parallel % 4 == 0 and x.virtual_pipeline == 1,
    ),
    "3B on 2x3090": Question(
        model="llama-3.2-3b",
        cluster="2xRTX-3090",
        seq=2048,
        global_batch=32,
        experts="adapters, states in 8 bits or offload: 18 bytes a weight are 58 GB of 48",
        looks=lambda x: x.offload is not Offload.NONE,
        helps=("--lora-rank 16", "xRTX-3090-24GB"),
    ),
    "BERT-large on 4 V100-16GB": Question(
        model="bert-large",
        cluster="4xV100-SXM-16GB",
        seq=512,
        global_batch=256,
        more=(("precision", "fp16"),),
        experts="plain data parallelism, fp16: github.com/NVIDIA/DeepLearningExamples (recalled)",
        looks=lambda x: x.data_parallel == 4,
    ),
}


Ask: TypeAlias = Callable[[str], ShownPlan]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Each question is planned once."""
    file = tmp_path_factory.mktemp("clusters") / "slow.yaml"
    file.write_text(_SLOW)

    @cache
    def answer(name: str) -> ShownPlan:
        question = QUESTIONS[name]
        return plan(
            model=question.model,
            cluster=question.cluster.replace(_SLOW, str(file)),
            seq=question.seq,
            global_batch=question.global_batch,
            **dict(question.more),
        )

    return answer


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_first_row_is_one_to_use_or_the_answer_says_what_helps(name: str, ask: Ask) -> None:
    question, answer = QUESTIONS[name], ask(name)
    document, text = plan_document(answer), plan_text(answer)
    first, changes = document["best"][0], document["nearest_changes"]
    layout = answer.plan.best[0].layout
    assert first["runnable"] or changes or document["trainer"] != "native"
    if first["runnable"]:
        assert layout.offload is Offload.NONE
        assert first["fits"] != "no"
        assert not changes
    elif question.helps:
        named = [one["change"] for one in changes]
        for words in question.helps:
            assert any(words in change for change in named), named
        assert all(change in text for change in named)
    if set(first["step_time_unchecked"]) - {"offload"}:
        assert "--verify" in text
    assert question.seq >= 8192 or layout.context_parallel == 1
    assert question.looks(layout) or (first["runnable"] and question.helps), layout


_MODELS = sorted({one.model for one in QUESTIONS.values()})


_TOO_LARGE = (
    ("meta-llama/Meta-Llama-3-70B", "1xRTX-4090"),
    ("meta-llama/Meta-Llama-3-70B", "2xA100-SXM-80GB"),
    ("mistralai/Mixtral-8x7B-v0.1", "1xH100"),
)
"""Models that no single change makes fit."""


def training(model: str, cluster: str) -> dict[str, Any]:
    seq = 512 if model.startswith("bert") else 4096
    global_batch = 16 if (model, cluster) in _TOO_LARGE else 256
    return {"model": model, "seq": seq, "global_batch": global_batch}


@cache
def changes_of(model: str, cluster: str) -> list[dict[str, Any]]:
    """Nearest changes of a training, planned once."""
    answer = plan(cluster=cluster, **training(model, cluster))
    changes: list[dict[str, Any]] = plan_document(answer)["nearest_changes"]
    return changes


@pytest.mark.parametrize(
    ("model", "cluster"),
    [*zip(_MODELS, itertools.cycle(["2x8xH100", "8xA100-SXM-40GB"]), strict=False), *_TOO_LARGE],
)
def test_the_flags_of_a_change_give_its_number(model: str, cluster: str) -> None:
    own = training(model, cluster)
    for one in changes_of(model, cluster):
        flags: dict[str, Any] = {"cluster": cluster}
        for words in one["change"].split(", "):
            name, _, value = words.removeprefix("--").partition(" ")
            if not words.startswith("--"):
                name, value = "cluster", words
            flags[name.replace("-", "_")] = int(value) if value.isdigit() else value or True
        typed = plan_document(plan(**{**own, **flags}))
        first = typed["best"][0]
        assert first["step_time_s"] == pytest.approx(one["step_time_s"]), one["change"]
        for name in ("candidate", "peak_memory_gib", "runs_here"):
            assert first[name] == one[name], one["change"]


@pytest.mark.parametrize(("model", "cluster"), _TOO_LARGE)
def test_where_no_single_change_fits_two_together_on_few_gpus_are_named(
    model: str, cluster: str
) -> None:
    changes = [one["change"] for one in changes_of(model, cluster)]
    *combined, larger = changes
    assert "--" not in larger.removeprefix("--exclude-offload, ")
    assert any("--lora-rank 16, --weights nf4" in one for one in combined)
    assert all("--" in one and ", " in one for one in combined)

    def gpus(change: str) -> int:
        counts = re.search(r"(\d+)x(\d+)x[A-Z]", change)
        return int(counts[1]) * int(counts[2]) if counts else 0

    assert all(gpus(one) < gpus(larger) for one in combined)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_does_not_run_here_leads_by_more_than_its_band_or_stands_apart(
    name: str, ask: Ask
) -> None:
    document = plan_document(ask(name))
    best = document["best"]
    first_s = best[0]["step_time_s"]
    for one in document["faster_if_it_works"]:
        assert one["step_time_s"] < first_s
        assert not one["runnable"]
    usable = [one["step_time_s"] for one in best if one["runnable"]]
    if usable and not best[0]["runnable"]:
        assert first_s * (1 + best[0]["step_time_band"]) < min(usable)


def test_a_slow_network_is_never_faster_than_what_its_cards_send(ask: Ask) -> None:
    """Each rank of a node sends every micro-batch to the next stage, and its gradient back."""
    answer = ask("13B on 4x8 A100 with 25 Gb/s")
    for one in answer.plan.best:
        x = one.layout
        if x.pipeline_parallel < 2:
            continue
        samples = x.micro_batch * x.accumulation / x.context_parallel / x.tensor_parallel
        ranks = min(8, x.world_size // x.pipeline_parallel)
        once = samples * ranks * 4096 * 5120 * 2 / 3.125e9
        assert one.step_s > (2 * x.virtual_pipeline - 1) * once
