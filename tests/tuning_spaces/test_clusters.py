from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.core import ClusterSpec, ConfigError, RawConfig
from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.estimates import machine_of
from autoconf_launch.tuning_spaces import (
    cluster_of_document,
    cluster_template,
    parse_cluster,
    usable_bytes,
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
