import re
from dataclasses import replace

import pytest

from autoconf_launch.core import ClusterSpec
from autoconf_launch.launcher.estimates import choose_price
from autoconf_launch.tuning_spaces import parse_cluster

H100 = parse_cluster("8xH100")


OF_FILE = ClusterSpec(nodes=tuple(replace(node, usd_per_hour=80.0) for node in H100.nodes))


@pytest.mark.parametrize(
    ("given", "cluster", "usd", "how"),
    [
        (2.0, OF_FILE, 2.0, "as given"),
        (None, OF_FILE, 10.0, "by the cluster file"),
        (None, H100, 3.99, "lambda .* 2026"),
        (None, parse_cluster("8xMI300X"), None, ""),
    ],
)
def test_a_price_is_the_given_the_files_or_the_published_one(
    given: float | None, cluster: ClusterSpec, usd: float | None, how: str
) -> None:
    found = choose_price(given, cluster)
    assert (found and found.usd_per_gpu_hour) == usd
    assert found is None or re.match(how, found.how)
