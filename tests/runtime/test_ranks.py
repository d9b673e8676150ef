import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.rank.ranks import join, rank_number, world_size

pytestmark = pytest.mark.usefixtures("alone")


def test_a_script_started_by_hand_is_the_only_rank() -> None:
    ranks = join({})
    assert (ranks.rank, ranks.world_size) == (0, 1)


def test_the_launchers_variables_count_before_the_ranks_meet() -> None:
    environment = {"RANK": "3", "WORLD_SIZE": "8"}
    assert (rank_number(environment), world_size(environment)) == (3, 8)


def test_missing_variables_are_named() -> None:
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2, but MASTER_ADDR, MASTER_PORT is not"):
        join({"WORLD_SIZE": "2", "RANK": "0"})


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'two'"):
        world_size({"WORLD_SIZE": "two"})


def test_ranks_that_have_met_do_not_meet_again() -> None:
    assert join({}) == join({})
