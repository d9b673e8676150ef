import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.autotuner.cost import Machine
from autoconf_launch.core import ClusterSpec, ConfigError, Device, Node, RawConfig
from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.estimates import machine_of
from autoconf_launch.tuning_spaces import (
    cluster_of_document,
    cluster_template,
    machine,
    parse_cluster,
    usable_bytes,
    with_network_of,
)
from autoconf_launch.tuning_spaces.clusters import NodeGroup


@pytest.mark.parametrize(
    ("text", "nodes", "gpus"),
    [
        ("8xA100-SXM-80GB", 1, 8),
        ("64x8xH100-SXM-80GB", 64, 8),
        ("T4-16GB", 1, 1),
        ("2x4xa100-40gb", 2, 4),
    ],
)
def test_a_short_name_says_nodes_and_gpus(text: str, nodes: int, gpus: int) -> None:
    cluster = parse_cluster(text)
    assert (len(cluster.nodes), len(cluster.devices)) == (nodes, nodes * gpus)


def test_a_short_name_numbers_slots_of_equal_nodes() -> None:
    assert [device.slot for device in parse_cluster("2x2xH100").devices] == [0, 1, 0, 1]
    assert parse_cluster("4x8xH100").are_nodes_equal
    assert usable_bytes("A100-SXM-80GB") / 2**30 == pytest.approx(79.1, abs=0.2)
    assert usable_bytes("T4-16GB") / 2**30 == pytest.approx(14.7, abs=0.1)
    assert usable_bytes("M3 Ultra") / 2**30 == 384


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("8xH1000", "did you mean 'H100-SXM-80GB'"),
        ("8x", "is not known; write for example"),
        ("0xH100", "out of range"),
        ("999999x99xH100", "out of range"),
        ("-1xH100", "is not known"),
    ],
)
def test_what_is_no_cluster_is_refused_in_one_line(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as error:
        parse_cluster(text)
    assert "\n" not in str(error.value)


def test_plus_groups_and_overrides_make_unequal_nodes() -> None:
    cluster = parse_cluster("1x8xA100-SXM-40GB+3x4xA10G-24GB")
    assert [(kind.name, kind.count) for kind in cluster.kinds] == [
        ("8xA100-SXM-40GB", 1),
        ("4xA10G-24GB", 3),
    ]
    assert [node.host for node in cluster.nodes] == ["node0", "node1", "node2", "node3"]
    assert cluster.node_kinds == (0, 1, 1, 1)
    group = {"gpu": "A100-40GB", "gpus": 8, "gpus_used": 4, "usd_per_hour": 32.7726}
    whole, part = (
        cluster_of_document(document(one)).nodes[0] for one in ({**group, "gpus_used": 8}, group)
    )
    assert (len(part.devices), part.rented_slots, part.usd_per_hour) == (4, 8, 32.7726)
    cards_bytes_per_s = machine_of(ClusterSpec(nodes=(whole,))).node_network_bytes_per_s
    assert part.network_bytes_per_s == cards_bytes_per_s
    cluster = cluster_of_document(
        document({"gpu": "V100-SXM-16GB", "count": 3, "gpus": 4}, {"gpu": "T4-16GB", "gpus": 4})
    )
    assert [node.devices[0].name for node in cluster.nodes] == 3 * ["V100-SXM-16GB"] + ["T4-16GB"]
    assert not cluster.are_nodes_equal
    with pytest.raises(ConfigError, match=r"nodes\[0\].gpus_used is 9, but a node has 8"):
        cluster_of_document(document({"gpu": "A100-40GB", "gpus_used": 9}))
    with pytest.raises(ConfigError, match=r"nodes\[0\].host_memory_gib is -1"):
        cluster_of_document(document({"gpu": "H100", "host_memory_gib": -1}))
    group = {
        "gpu": "H100",
        "memory_gib": 96,
        "link_gb_per_s": 400,
        "network_gb_per_s": 12.5,
        "usd_per_hour": 20,
    }
    node = cluster_of_document(document(group)).nodes[0]
    rates = (node.link_bytes_per_s, node.network_bytes_per_s, node.usd_per_hour)
    assert rates == (400e9, 100e9, 20)
    assert node.devices[0].memory_bytes == 96 * 2**30
    cluster = cluster_of_document(document({"gpu": "RTX-4090", "gpus": 2, "host_memory_gib": 64}))
    assert cluster.least_host_memory_bytes == 64 * 2**30
    known = {"gpu": "H100", "gpus": 8}
    assert cluster_of_document(document(known, {"gpu": "T4-16GB"})).least_host_memory_bytes is None


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("8xA100+3x4xA10H-24GB", "Part 2 of cluster .*did you mean 'A10-24GB'"),
        ("8xA100+", "Part 2 of cluster .* is not known; write"),
        ("1x8xA100+0x4xA10G", "Part 2 .*out of range"),
        ("131072x8xA100+8xA10G", "more than 1048576 GPUs in all"),
    ],
)
def test_a_wrong_part_of_a_mix_is_named(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as error:
        parse_cluster(text)
    assert "\n" not in str(error.value)


def test_a_cluster_of_too_many_gpus_is_refused_before_its_nodes_are_made() -> None:
    began_s = time.perf_counter()
    with pytest.raises(ConfigError, match="more than 1048576 GPUs in all"):
        parse_cluster("131072x8xA100+8xA10G")
    assert time.perf_counter() - began_s < 0.5


X9 = {"gpu": "X9", "gpus": 4, "peak_tflops": 400, "memory_gib": 60, "bandwidth_gb_per_s": 2000}


def machine_like(**more: object) -> Machine:
    return machine_of(cluster_of_document(document({**X9, "link_gb_per_s": 200, **more})))


def test_a_described_gpu_has_the_rates_of_its_file_and_says_which_are_assumed() -> None:
    plain = machine_like()
    gpu = plain.accelerator
    assert (gpu.name, gpu.half_flops_per_s, gpu.memory_bytes_per_s) == ("X9", 400e12, 2000e9)
    assert gpu.memory_bytes == 60 * 2**30
    assert gpu.tf32_flops_per_s is gpu.fp8_flops_per_s is None
    assert gpu.assumed == ("reached_tflops", "attention_tflops", "all_reduce_gb_per_s")
    measured = machine_like(
        reached_tflops=300,
        attention_tflops=200,
        attention_backward_tflops=160,
        all_reduce_gb_per_s=150,
        all_reduce_us=30,
        host_link_gb_per_s=20,
    )
    gpu = measured.accelerator
    assert (gpu.reached, gpu.attention, gpu.attention_backward) == (0.75, 0.5, 0.4)
    assert gpu.assumed == ()
    ((line,),) = measured.link.rates
    assert line.latency_s == pytest.approx(30e-6)
    assert line.link_fraction == 0.75
    assert measured.physics.host_link_bytes_per_s == 20e9


def test_measured_rates_replace_those_of_a_row() -> None:
    group = {"gpu": "H100", "reached_tflops": 600, "host_link_gb_per_s": 50}
    ours = machine_of(cluster_of_document(document(group)))
    usual = machine("H100")
    assert ours.accelerator.reached == pytest.approx(600 / 989)
    assert replace(ours.accelerator, reached=usual.accelerator.reached) == usual.accelerator
    assert replace(ours, accelerator=usual.accelerator, physics=usual.physics) == usual


def test_a_host_gets_the_rates_of_its_description() -> None:
    file = cluster_of_document(document({**X9, "gpus": 1, "reached_tflops": 300}))
    host = Node(host="here", devices=(Device(name="X9", memory_bytes=60 << 30),))
    found = with_network_of(file, ClusterSpec(nodes=(host,)))
    assert machine_of(found).accelerator.reached == 0.75


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({}, r"nodes\[0\] must have link_gb_per_s"),
        ({"gpus": 1, "memory_gib": None}, r"nodes\[0\] must have memory_gib"),
        ({"link_gb_per_s": 200, "count": 2}, r"nodes\[0\] must have network_gb_per_s"),
        ({"link_gb_per_s": 200, "reached_tflops": 500}, "above peak_tflops"),
        ({"link_gb_per_s": 200, "attention_tflops": 5}, "attention_backward_tflops is missing"),
        ({"link_gb_per_s": 200, "peak_tflops": -1}, r"peak_tflops is -1, but must be a number"),
    ],
)
def test_a_description_that_lacks_or_contradicts_something_is_refused(
    more: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        cluster_of_document(document({**X9, **more}))


def document(*groups: dict[str, Any]) -> RawConfig:
    return RawConfig({"nodes": list(groups)})


@pytest.mark.parametrize(
    "group",
    [
        {"gpu": "H100", "cuont": 2},
        {"gpu": "H100", "count": 0},
        {"gpu": "H100", "gpus": 2.5},
        {"gpu": "H100", "memory_gib": -1},
        {"gpu": "H100", "memory_gib": 1e-300},
        {"gpu": "H100", 5: 1},
        {"count": 2},
        {"gpu": "H100", "count": 1 << 40},
    ],
)
def test_a_wrong_group_is_refused_with_its_place(group: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"nodes\[0\]"):
        cluster_of_document(document(group))


def test_the_template_and_the_guide_have_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(cluster_template())
    assert {*document["nodes"][0]} == NodeGroup.model_fields.keys()
    cluster = cluster_of_document(RawConfig(document))
    assert (len(cluster.nodes), len(cluster.devices)) == (16, 128)
    guide = Path(__file__).parents[2] / "docs" / "clusters.md"
    assert main(["plan", "--cluster-template"]) == 0
    assert capsys.readouterr().out == cluster_template()
    assert f"```yaml\n{cluster_template()}```\n" in guide.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "gib"),
    [("2x8xH100-SXM-80GB", 2048), ("4xT4", 192), ("H100", None), ("4xRTX-4090", None)],
)
def test_only_nodes_of_the_usual_size_have_a_usual_host_memory(text: str, gib: int | None) -> None:
    assert parse_cluster(text).least_host_memory_bytes == (None if gib is None else gib * 2**30)
