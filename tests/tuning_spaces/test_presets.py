"""FASOP's trainings and clusters, against the numbers that its repository has."""

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import named_model, preset, preset_names

GBIT = 1e9 / 8


def test_all_experiments_of_fasop_are_there_in_any_case() -> None:
    both = {"fasop/bert", "fasop/gpt2XL", "fasop/T5"}
    heterogeneous = {f"{name}-heterogeneous" for name in both}
    assert set(preset_names()) == both | heterogeneous | {"fasop/gpt2XL-pareto"}
    assert preset("FASOP/t5").name == "fasop/T5"
    with pytest.raises(ConfigError, match=r"'fasop/bertt' is unknown; did you mean 'fasop/bert'"):
        preset("fasop/bertt")


@pytest.mark.parametrize(
    ("name", "batch", "seq"),
    [("fasop/bert", 256, 512), ("fasop/gpt2XL", 64, 1024), ("fasop/T5", 128, 512)],
)
def test_a_training_has_12_5_million_steps_of_its_batch(name: str, batch: int, seq: int) -> None:
    for found in (preset(name), preset(f"{name}-heterogeneous")):
        assert found.flags["--global-batch"] == str(batch)
        assert found.flags["--seq"] == str(seq)
        assert found.flags["--precision"] == "fp16"
        assert int(found.flags["--tokens"]) == 12_500_000 * batch * seq


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("fasop/bert", (24, 0, 1024, 16, 64, 30522)),
        ("fasop/gpt2XL", (48, 0, 1600, 16, 100, 50257)),
        ("fasop/T5", (24, 24, 1024, 32, 128, 30522)),
    ],
)
def test_a_model_has_the_shapes_of_fasop(name: str, shapes: tuple[int, ...]) -> None:
    model = named_model(preset(name).flags["--model"])
    sizes = (model.layers, model.encoder_layers, model.hidden, model.heads, model.head)
    assert (*sizes, model.vocabulary) == shapes


def test_clusters_of_fasop_pay_the_whole_node_and_have_its_links() -> None:
    a100, a10 = preset("fasop/T5-heterogeneous").cluster.kinds
    assert (a100.name, a100.count, a100.node.rented_slots) == ("4xA100-SXM-40GB", 1, 8)
    assert (a10.name, a10.count, a10.node.rented_slots) == ("4xA10G-24GB", 7, 4)
    assert (a100.node.usd_per_hour, a10.node.usd_per_hour) == (32.7726, 8.144)
    for kind, inside in ((a100, 1840), (a10, 128)):
        assert kind.node.network_bytes_per_s == pytest.approx(40 * GBIT)
        assert kind.node.link_bytes_per_s == pytest.approx(inside * GBIT)
    found = preset("fasop/gpt2XL-pareto")
    a100, a10 = found.cluster.kinds
    assert (a100.count + 1) * (a10.count + 1) - 1 == 80
    assert (a100.name, a10.name) == ("8xA100-SXM-40GB", "8xA10G-24GB")
    assert (a100.node.usd_per_hour, a10.node.usd_per_hour) == (32.7726, 9.773)
    for kind, across, inside in ((a100, 400, 1840), (a10, 100, 252)):
        assert kind.node.network_bytes_per_s == pytest.approx(across * GBIT)
        assert kind.node.link_bytes_per_s == pytest.approx(inside * GBIT)
    assert found.degrees is not None
    assert found.degrees.tensor_parallel == (1, 2, 4)
