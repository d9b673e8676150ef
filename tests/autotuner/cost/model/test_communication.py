from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    GATHER,
    Group,
    Machine,
    StageSends,
    ring_s,
)

from .conftest import MACHINE

PLAIN = replace(DEFAULT_PHYSICS, network_fraction=1.0, network_latency_s=0.0, hop_s=0.0)
GB = np.array([1e9])


def ring(machine: Machine, ranks: int, stride: int, passes: float = 2.0, world: int = 0) -> float:
    group = Group(np.array([ranks]), np.array([stride]), world=np.array([world]))
    plain = replace(machine, physics=PLAIN)
    return float(ring_s(plain, group, GB, passes=passes)[0])


def test_a_ring_inside_a_node_takes_the_measured_line() -> None:
    assert ring(MACHINE, 1, 1) == 0.0
    assert ring(MACHINE, 8, 1) == pytest.approx(40e-6 + 2 * 7 / 8 * 1e9 / 80e9)
    assert ring(MACHINE, 5, 1) == pytest.approx(25e-6 + 2 * 4 / 5 * 1e9 / 65e9)
    assert ring(MACHINE, 8, 1, GATHER) == pytest.approx(ring(MACHINE, 8, 1) / 2)


def test_groups_share_the_cards_and_rails_of_a_node() -> None:
    alone, shared = ring(MACHINE, 16, 1), ring(MACHINE, 16, 8)
    assert shared / alone == pytest.approx(8.0)
    one_each, four_each = ring(MACHINE, 16, 8), ring(MACHINE, 16, 2)
    share = PLAIN.crossed_rails * 8 / 2  # half as fast, but shared by 2 groups instead of 8
    assert one_each / four_each == pytest.approx(share)
    slow = replace(MACHINE, node_network_bytes_per_s=8e9)
    assert ring(slow, 16, 8) / ring(slow, 16, 2) == pytest.approx(8 / 2)
    fast = replace(MACHINE, node_network_bytes_per_s=1e15)
    assert ring(fast, 16, 1) == pytest.approx(40e-6 + 2 * 7 / 8 * 1e9 / 80e9)


def sends(machine: Machine, stages: int, stage_ranks: int) -> StageSends:
    plain = replace(machine, physics=PLAIN)
    return StageSends.between(np.array([stages]), np.array([stage_ranks]), plain, GB)


def test_stages_send_by_links_inside_a_node_and_by_cards_across() -> None:
    assert sends(MACHINE, 2, 8).way_s_C[0] == pytest.approx(1e9 / (80e9 / 8))
    found = sends(MACHINE, 4, 2)
    assert found.cards_s_C[0] == 0.0
    assert found.back_s_C[0] == pytest.approx(1e9 / (0.6 * 100e9))
    # With 8 stages of 4 ranks, every second border lies inside a node of 8.
    found, link, cards = sends(MACHINE, 8, 4), 1e9 / (0.6 * 100e9), 1e9 / (80e9 / 4)
    assert found.slowest_s_C[0] == found.back_s_C[0] == pytest.approx(cards)
    assert found.end_s_C[0] == pytest.approx(link)
    assert found.middle_s_C[0] == pytest.approx(link + cards)
    assert found.way_s_C[0] == pytest.approx(4 * link + 3 * cards)


def test_groups_cut_by_nodes_pay_for_the_network() -> None:
    # 6 ranks fit in a node of 8, but the second 6 of 24 do not lie in one.
    slow = replace(MACHINE, node_network_bytes_per_s=8e9)
    assert ring(slow, 6, 1) == ring(slow, 6, 1, world=6) < 0.04
    assert ring(slow, 6, 1, world=24) == pytest.approx(2 * 2 * 5 / 6 * 1e9 / 8e9)
    assert ring(slow, 12, 1, world=24) == pytest.approx(2 * 2 * 11 / 12 * 1e9 / 8e9)
    assert ring(slow, 16, 1, world=32) == pytest.approx(2 * 15 / 16 * 1e9 / 8e9)
