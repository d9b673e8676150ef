import pytest

from autoconf_launch.core import Device, Node
from autoconf_launch.tuning_spaces import with_links


def node(*names: str) -> Node:
    return Node(host="here", devices=tuple(Device(name=n, memory_bytes=1) for n in names))


def test_nodes_have_the_links_of_their_devices() -> None:
    found = with_links(node(*["NVIDIA A100-SXM4-80GB"] * 8)).link_bytes_per_s
    assert found == pytest.approx(300e9, rel=0.4)
    found = with_links(node("cpu (x86_64)", "cpu (x86_64)"))
    assert (found.link_bytes_per_s or 0) < 1e9 < 1e12 * (found.link_latency_s or 0)


@pytest.mark.parametrize("names", [("Voodoo 3",), ("Tesla T4", "NVIDIA L4")])
def test_nothing_is_said_of_unknown_or_unlike_gpus(names: tuple[str, ...]) -> None:
    assert with_links(node(*names)) == node(*names)
