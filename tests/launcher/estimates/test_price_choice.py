from dataclasses import replace

from autoconf_launch.core import ClusterSpec
from autoconf_launch.launcher.estimates import choose_price
from autoconf_launch.tuning_spaces import parse_cluster

H100 = parse_cluster("8xH100")


def price(usd_per_hour: float) -> ClusterSpec:
    return ClusterSpec(nodes=tuple(replace(n, usd_per_hour=usd_per_hour) for n in H100.nodes))


def test_a_given_price_wins() -> None:
    found = choose_price(2.0, price(80.0))
    assert found
    assert (found.usd_per_gpu_hour, found.how) == (2.0, "as given")


def test_a_cluster_file_s_price_is_of_a_node() -> None:
    found = choose_price(None, price(80.0))
    assert found
    assert found.usd_per_gpu_hour == 10.0


def test_a_published_price_says_where_and_when_it_was_read() -> None:
    found = choose_price(None, H100)
    assert found
    assert (found.usd_per_gpu_hour, "lambda" in found.how, "2026" in found.how) == (
        3.99,
        True,
        True,
    )


def test_a_gpu_without_a_known_price_has_none() -> None:
    assert choose_price(None, parse_cluster("8xMI300X")) is None
