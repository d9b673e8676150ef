import socket
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.rank import join, rank_number, ranks, world_size

pytestmark = pytest.mark.usefixtures("alone")


def test_a_script_started_by_hand_is_the_only_rank() -> None:
    met = join({})
    assert (met.rank, met.world_size) == (0, 1)


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


def test_the_store_of_rank_0_listens_at_the_address_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {"RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    store = ranks._own_store({**place, **sizes})
    assert store is not None
    addresses = [
        line.split()[1].split(":")[0]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    ]
    assert addresses in (["0100007F"], ["00000000000000000000000001000000"])
    other = ranks.TCPStore("localhost", port, 2, False)  # as torch's env:// makes it
    other.set("default_pg/key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(OSError, match="in use"):
        ranks._own_store({**place, **sizes})


def test_a_name_that_other_hosts_may_know_otherwise_is_left_to_torch() -> None:
    place = {"RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    assert ranks._own_store({**place, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}) is None
