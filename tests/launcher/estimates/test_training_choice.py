from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import trained_share
from autoconf_launch.core import (
    AppliedStrategy,
    FrozenPart,
    Precision,
    RankResult,
    RawConfig,
    Recompute,
    StepRecord,
    Workload,
)
from autoconf_launch.launcher.estimates import machine_of, profiled_format_gains
from autoconf_launch.tuning_spaces import cluster_of_document, named_model, parse_cluster

GPT = named_model("gpt2")
GPT2 = Workload(model=GPT, sequence_length=1024)


def test_links_of_a_cluster_file_take_the_place_of_the_usual_ones() -> None:
    group = {"gpu": "H100", "gpus": 4, "link_gb_per_s": 100, "network_gb_per_s": 10}
    found = machine_of(cluster_of_document(RawConfig({"nodes": [group]})))
    assert (found.gpus_per_node, found.link.bytes_per_s) == (4, 100e9)
    assert found.node_network_bytes_per_s == 40e9


def test_adapters_alone_have_gradients() -> None:
    assert trained_share(replace(GPT2, lora_rank=8)) < 0.02


def test_frozen_parts_have_none() -> None:
    frozen = replace(GPT2, frozen=frozenset({FrozenPart.EMBEDDING}))
    # 50257 x 768 and 1024 x 768 of 124.4 million
    assert trained_share(frozen) == pytest.approx(1 - 39.38 / 124.44, abs=1e-3)


def profile(precision: Precision, flops: float | None = 1e15) -> RankResult:
    return RankResult(
        rank=0,
        world_size=1,
        attempt="a",
        ended_unix_s=0.0,
        steps=(StepRecord(rank=0, step=1, wall_s=4.0, samples=1),),
        applied=AppliedStrategy(
            zero_stage=0,
            data_parallel=1,
            micro_batch=1,
            accumulation=1,
            precision=precision,
            recompute=Recompute.NONE,
        ),
        flops_per_step=flops,
    )


@pytest.mark.parametrize(
    ("cluster", "ran", "gained"),
    [
        ("H100", profile(Precision.FP32), {Precision.TF32, Precision.BF16}),
        ("H100", profile(Precision.TF32), {Precision.BF16}),
        ("V100", profile(Precision.FP32), {Precision.FP16}),
        ("H100", profile(Precision.BF16), set()),
        ("H100", profile(Precision.FP32, None), set()),
        ("1xH100+1xA100", profile(Precision.FP32), set()),
        ("H100", None, set()),
    ],
)
def test_a_profile_run_says_what_other_formats_would_gain(
    cluster: str, ran: RankResult | None, gained: set[Precision]
) -> None:
    found = profiled_format_gains(parse_cluster(cluster), Precision.FP32, ran, None)
    assert {one.precision for one in found} == gained
