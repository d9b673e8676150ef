import csv

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.machines import (
    _FOLDER,
    _plain,
    accelerator_names,
    known_accelerator,
    machine,
)


@pytest.mark.parametrize("name", accelerator_names())
def test_every_gpu_has_plausible_numbers(name: str) -> None:
    gpu = machine(name).accelerator
    assert 1e13 < gpu.half_flops_per_s < 1e16
    assert 0 < gpu.reached <= 1
    assert 1e11 < gpu.memory_bytes_per_s < 1e14


def test_an_alias_is_its_gpu() -> None:
    assert known_accelerator("b200-sxm") == "B200-SXM-180GB"


def test_a_stated_network_replaces_the_usual_one() -> None:
    usual = machine("A100-SXM-80GB", gpus_per_node=4)
    stated = machine("A100-SXM-80GB", gpus_per_node=4, network_bytes_per_s=5e9)
    assert (usual.node_network_bytes_per_s, stated.node_network_bytes_per_s) == (100e9, 5e9)


def test_an_unknown_gpu_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'A100-SXM-80GB'"):
        machine("A100-SXM-88GB")


def test_an_unknown_gpu_that_is_near_an_alias_is_named_too() -> None:
    with pytest.raises(ConfigError, match="did you mean 'H100-SXM-80GB'"):
        machine("H101")


@pytest.mark.parametrize("name", ["RTX 4090", "rtx_4090", "RTX4090", "NVIDIA GeForce RTX 4090"])
def test_blanks_hyphens_and_underscores_are_one_in_a_gpus_name(name: str) -> None:
    assert known_accelerator(name) == "RTX-4090-24GB"


def test_no_two_gpus_share_an_alias_or_a_drivers_name() -> None:
    with (_FOLDER / "gpus.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [row["name"] for row in rows]
    names += [alias for row in rows for alias in row["aliases"].split()]
    names += [name for row in rows for name in row["driver"].split("|") if name]
    assert len({_plain(name) for name in names}) == len(names)
