"""``doctor`` over three hosts that are reached by ssh."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces
from .launching import COMMAND
from .namespaces import Hosts

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not namespaces.CAN_RUN, reason=namespaces.REASON),
]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with namespaces.running(slots=1) as running:
        yield running


def doctor(hosts: Hosts, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*COMMAND, "doctor", *hosts.flags, *words),
        env=hosts.variables,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


def test_a_host_with_a_slow_link_is_named(hosts: Hosts) -> None:
    slow = hosts.names[2]
    hosts.slow_down(slow, megabits_per_s=200)
    done = doctor(hosts, "--json")
    assert done.returncode == 4, done.stderr
    found = json.loads(done.stdout)
    rates = {tuple(one["hosts"]): one["all_reduce_bytes_per_s"] for one in found["links"]}
    assert len(rates) == 3
    assert all(rate < 30e6 for pair, rate in rates.items() if slow in pair), rates
    assert [one for one in found["problems"] if "link" in one] == [
        one for one in found["problems"] if one.startswith(f"Host {slow} has a link of ")
    ]
    assert hosts.are_idle_within(15)


def test_a_host_that_is_down_is_named(hosts: Hosts) -> None:
    hosts.cut(hosts.names[1])
    done = doctor(hosts)
    assert done.returncode == 4
    assert done.stderr.startswith(f"autoconf-launch: Host {hosts.names[1]} ")
    assert done.stderr.count("\n") == 1


def test_a_host_that_does_not_reach_the_first_ones_port_is_named(hosts: Hosts) -> None:
    hosts.block_ports(hosts.names[0], hosts.names[2])
    said = _say_blocked(hosts)
    first, _, last = hosts.names
    assert re.match(
        rf"autoconf-launch: Port \d+ of host {first} is not reached from {last}\. ", said
    )


def test_two_hosts_that_reach_the_first_one_alone_are_named(hosts: Hosts) -> None:
    hosts.block_ports(hosts.names[1], hosts.names[2])
    said = _say_blocked(hosts)
    for here, there in (hosts.names[1:], hosts.names[:0:-1]):
        assert re.search(rf"Port \d+ of host {here} is not reached from {there}\.", said)
    assert f"of host {hosts.names[0]}" not in said


def _say_blocked(hosts: Hosts) -> str:
    done = doctor(hosts)
    assert (done.returncode, done.stdout) == (4, "")
    assert "let the hosts' firewall pass TCP between them" in done.stderr
    assert hosts.are_idle_within(15)
    return done.stderr


def test_hosts_may_have_different_numbers_of_slots(hosts: Hosts) -> None:
    lines = [f"{name} slots={1 + number % 2}\n" for number, name in enumerate(hosts.names)]
    Path(hosts.hostfile).write_text("".join(lines))
    done = doctor(hosts, "--json")
    links = json.loads(done.stdout)["links"]
    assert len(links) == 3, done.stderr
