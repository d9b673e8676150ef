from autoconf_launch.autotuner.mixed import placement
from autoconf_launch.tuning_spaces import parse_cluster

MIX = parse_cluster("1x4xA100-SXM-40GB+2x2xA10G-24GB")


def test_ranks_fill_the_used_nodes_in_the_order_of_their_kinds() -> None:
    assert placement(MIX, (1, 0, 1)) == (4, 5, 0, 1, 2, 3, 6, 7)
    assert placement(MIX, (1, 1)) == (4, 5, 6, 7)
