"""A port that another host cannot reach is found before anything waits for it."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from autoconf_launch.runtime.host_checks.__main__ import find_blocked, is_blocked


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    return store


def client(server: TCPStore) -> Store:
    return TCPStore("127.0.0.1", server.port, None, False, timeout=timedelta(seconds=10))


def test_hosts_that_reach_each_other_go_on(server: TCPStore) -> None:
    stores = [client(server) for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(find_blocked, stores[0], 0, [1], 2)
        second = pool.submit(find_blocked, stores[1], 1, [0], 2)
        other = pool.submit(is_blocked, stores[2])
        assert (first.result(), second.result(), other.result()) == (None, None, False)


def test_a_port_that_nobody_answers_at_is_named(server: TCPStore) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        server.set("port/1", json.dumps(["127.0.0.1", port]))
        server.set("reached/1", "yes")
        assert find_blocked(client(server), 0, [1], 2) == [(1, port)]
    assert is_blocked(client(server))


def test_a_host_that_reaches_all_waits_for_nothing_where_another_does_not(
    server: TCPStore,
) -> None:
    server.set("port", "yes")
    server.set("reached", "no")
    server.set("port/0", json.dumps(["127.0.0.1", server.port]))
    assert find_blocked(client(server), 1, [0], 2) == []
