import csv

import pytest

from autoconf_launch.core import ConfigError, Device, Node
from autoconf_launch.tuning_spaces import (
    accelerator_names,
    known_accelerator,
    machine,
    price,
    with_links,
)
from autoconf_launch.tuning_spaces.clusters import prices
from autoconf_launch.tuning_spaces.machines import _FOLDER, _plain


@pytest.mark.parametrize("name", accelerator_names())
def test_every_gpu_has_plausible_numbers(name: str) -> None:
    gpu = machine(name).accelerator
    assert 1e13 < gpu.half_flops_per_s < 1e16
    assert 0 < gpu.reached <= 1
    assert 1e11 < gpu.memory_bytes_per_s < 1e14


def test_gpus_are_known_by_alias_links_and_network() -> None:
    assert known_accelerator("b200-sxm") == "B200-SXM-180GB"
    with pytest.raises(ConfigError, match="did you mean 'A100-SXM-80GB'"):
        machine("A100-SXM-88GB")
    with pytest.raises(ConfigError, match="did you mean 'H100-SXM-80GB'"):
        machine("H101")
    usual = machine("A100-SXM-80GB", gpus_per_node=4)
    stated = machine("A100-SXM-80GB", gpus_per_node=4, network_bytes_per_s=5e9)
    assert (usual.node_network_bytes_per_s, stated.node_network_bytes_per_s) == (100e9, 5e9)
    found = with_links(node(*["NVIDIA A100-SXM4-80GB"] * 8)).link_bytes_per_s
    assert found == pytest.approx(300e9, rel=0.4)
    cpus = with_links(node("cpu (x86_64)", "cpu (x86_64)"))
    assert (cpus.link_bytes_per_s or 0) < 1e9 < 1e12 * (cpus.link_latency_s or 0)


@pytest.mark.parametrize("name", ["RTX 4090", "rtx_4090", "RTX4090", "NVIDIA GeForce RTX 4090"])
def test_blanks_hyphens_and_underscores_are_one_in_a_gpus_name(name: str) -> None:
    assert known_accelerator(name) == "RTX-4090-24GB"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("Gaudi 3", "Gaudi-3-128GB"),
        ("mi355x", "MI355X-288GB"),
        ("MI350X", "MI350X-288GB"),
        ("M3 Ultra", "M3-Ultra-512GB"),
        ("m4-max", "M4-Max-128GB"),
        ("A800", "A800-SXM-80GB"),
        ("H20", "H20-96GB"),
        ("DGX Spark", "GB10-128GB"),
    ],
)
def test_chips_of_other_vendors_and_markets_have_rows(name: str, row: str) -> None:
    assert known_accelerator(name) == row


@pytest.mark.parametrize("name", ["Trainium2", "TPU-v5p", "Ascend-910B", "X9"])
def test_a_name_that_is_like_none_gets_no_guess_but_the_way_to_describe_it(name: str) -> None:
    with pytest.raises(ConfigError, match="is unknown; describe it with peak_tflops") as error:
        machine(name)
    assert "did you mean" not in str(error.value)


def _rows() -> list[dict[str, str]]:
    with (_FOLDER / "gpus.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_no_two_gpus_share_an_alias_or_a_drivers_name_and_memory() -> None:
    rows = _rows()
    names = [row["name"] for row in rows]
    names += [alias for row in rows for alias in row["aliases"].split()]
    assert len({_plain(name) for name in names}) == len(names)
    drivers = {_plain(name) for row in rows for name in row["driver"].split("|") if name}
    assert not drivers & {_plain(name) for name in names} - {"quadrortx6000", "quadrortx8000"}
    pairs = [
        (_plain(name), row["memory_gb"])
        for row in _rows()
        for name in filter(None, row["driver"].split("|"))
    ]
    assert len(set(pairs)) == len(pairs)


MIB = 2**20


@pytest.mark.parametrize(
    ("driver", "mib", "row"),
    [
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "RTX-4060-Ti-16GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "RTX-4060-Ti-8GB"),
        ("NVIDIA GeForce RTX 3060", 12288, "RTX-3060-12GB"),
        ("NVIDIA GeForce RTX 3060", 8192, "RTX-3060-8GB"),
        ("NVIDIA GeForce RTX 3080", 10240, "RTX-3080-10GB"),
        ("NVIDIA GeForce RTX 3080", 12288, "RTX-3080-12GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-SXM-40GB"),
        ("NVIDIA A100X", 81920, "A100X-80GB"),
        ("Tesla T4", 15360, "T4-16GB"),
        ("NVIDIA A10G", 23028, "A10G-24GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-SXM-80GB"),
        ("NVIDIA GB10", 119 * 1024, "GB10-128GB"),
    ],
)
def test_a_card_is_known_by_its_drivers_name_and_memory(driver: str, mib: int, row: str) -> None:
    assert known_accelerator(driver, mib * MIB) == row


@pytest.mark.parametrize(
    ("driver", "mib"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16384),
        ("NVIDIA Graphics Device", 24576),
        ("GRID A100X-40C", 40960),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864),
        ("NVIDIA A100-SXM4-80GB", 9856),
    ],
)
def test_laptops_slices_and_new_cards_have_no_row(driver: str, mib: int) -> None:
    assert known_accelerator(driver, mib * MIB) is None


@pytest.mark.parametrize("name", accelerator_names())
def test_fp32_is_no_faster_than_tensor_cores_make_it(name: str) -> None:
    gpu = machine(name).accelerator
    assert 4e12 < gpu.fp32_flops_per_s <= gpu.half_flops_per_s
    assert 0.7 < gpu.fp32_reached < 1
    if gpu.tf32_flops_per_s is not None:
        assert gpu.fp32_flops_per_s <= gpu.tf32_flops_per_s * 1.01
        is_intel = name.startswith("Gaudi")
        share = 0.274 if is_intel else 0.5
        assert gpu.tf32_flops_per_s == pytest.approx(gpu.half_flops_per_s * share, rel=0.03)
        assert gpu.bf16


@pytest.mark.parametrize("name", ["V100", "T4", "P40", "P100", "RTX-2080-Ti", "MI250X"])
def test_gpus_before_ampere_have_no_tf32(name: str) -> None:
    assert machine(name).accelerator.tf32_flops_per_s is None


def node(*names: str) -> Node:
    return Node(host="here", devices=tuple(Device(name=n, memory_bytes=1) for n in names))


@pytest.mark.parametrize("names", [("Voodoo 3",), ("Tesla T4", "NVIDIA L4")])
def test_nothing_is_said_of_unknown_or_unlike_gpus(names: tuple[str, ...]) -> None:
    assert with_links(node(*names)) == node(*names)


def test_prices_have_an_age_a_source_and_an_order() -> None:
    years = [one.as_of for one in prices("A100-SXM-40GB")]
    assert years[-1].startswith("2023")
    found = price("H100-SXM-80GB")
    assert found
    assert (found.cloud, found.usd_per_gpu_hour) == ("lambda", 31.92 / 8)
    for gpu in accelerator_names():
        assert all(one.source and one.as_of for one in prices(gpu))
    assert price("MI300X-192GB") is None
