"""Hosts of the cluster tests: network namespaces on one bridge, each with its own sshd.

They share processes and files, so that "kill a host" kills what its namespace holds.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .launching import wait_until

CAN_RUN = os.geteuid() == 0 and shutil.which("tc") and Path("/usr/sbin/sshd").exists()
REASON = "needs root, iproute2 and openssh-server"
_numbers = itertools.count()  # the kernel frees a name some time after its namespace


def run(*command: str, check: bool = True) -> str:
    """Standard output of a command that has to work."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if check and answer.returncode:
        raise RuntimeError(f"{command}: {answer.stderr}")
    return answer.stdout


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Some hosts that can be reached by ssh."""

    folder: Path
    names: tuple[str, ...]
    network: str
    """The first three bytes of their addresses."""

    @property
    def hostfile(self) -> str:
        return str(self.folder / "hostfile")

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags by which a launch reaches them."""
        return self.flags_of("ssh")

    def flags_of(self, engine: str) -> tuple[str, ...]:
        """Flags by which a launch with this engine reaches them, in this environment."""
        net = f"{self.network}.0/24"
        words = {
            "ssh": f"-F {self.folder / 'ssh_config'}",
            "pdsh": "",
            "openmpi": f"--allow-run-as-root --mca plm_rsh_agent {self.folder / 'rsh'} "
            f"--mca btl_tcp_if_include {net} --mca oob_tcp_if_include {net}",
        }[engine]
        hosts = ("--launcher", engine, "--hostfile", self.hostfile)
        return (*hosts, "--launcher_args", words) if words else hosts

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a launch; both hosts have the same cores."""
        own = {"OMP_NUM_THREADS": "1", "PDSH_SSH_ARGS_APPEND": f"-F {self.folder / 'ssh_config'}"}
        return {**os.environ, **own}

    def processes(self, name: str) -> list[int]:
        """Processes of one host without sshd's, which keep a connection that was cut."""
        pids = run("ip", "netns", "pids", name, check=False).split()
        return [int(pid) for pid in pids if b"sshd" not in _command(pid)]

    def run_script(self, script: str) -> bool:
        """True if it runs on every host."""
        word = script.encode()
        return all(
            any(word in _command(str(pid)).split(b"\0") for pid in self.processes(name))
            for name in self.names
        )

    def kill(self, name: str) -> None:
        """End everything on a host at once."""
        for pid in run("ip", "netns", "pids", name, check=False).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def cut(self, name: str) -> None:
        """Take down the link of a host."""
        run("ip", "link", "set", f"v{name}", "down")

    def slow_down(self, name: str, megabits_per_s: int) -> None:
        """Limit what a host sends and what it gets."""
        limit = ("rate", f"{megabits_per_s}mbit", "burst", "64kb", "latency", "200ms")
        run("tc", "qdisc", "add", "dev", f"v{name}", "root", "tbf", *limit)
        run(
            "ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit
        )

    def block_ports(self, name: str, other: str) -> None:
        """Let nothing that this host sends reach the other's ports above 1023, as a firewall."""
        address = f"{self.network}.{1 + self.names.index(other)}"
        where = ("to", address, "ipproto", "tcp", "dport", "1024-65534")
        run("ip", "-n", name, "rule", "add", *where, "blackhole")

    def are_idle_within(self, timeout_s: float, names: Sequence[str] = ()) -> bool:
        """True if nothing but sshd runs on them before so many seconds are over."""
        return wait_until(lambda: not any(map(self.processes, names or self.names)), timeout_s)


def _command(pid: str) -> bytes:
    with suppress(OSError):
        return Path("/proc", pid, "cmdline").read_bytes()
    return b"sshd"  # it has ended


@contextmanager
def running(count: int = 3, *, slots: int = 2, hidden: Path | None = None) -> Iterator[Hosts]:
    """Bring hosts up, and take them down. The last one has its own, empty ``hidden``."""
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    letters = (chr(ord("a") + digit) for digit in divmod(next(_numbers), 26))
    prefix = f"al{os.getpid() % 10_000}{''.join(letters)}"
    bridge, names = f"{prefix}br", tuple(f"{prefix}{number}" for number in range(1, count + 1))
    Path("/run/sshd").mkdir(exist_ok=True)
    hosts = Hosts(folder=folder, names=names, network=_find_network())
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", f"{hosts.network}.254/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        for number, name in enumerate(names, start=1):
            own = hidden if number == count else None
            _start_host(hosts, name, f"{hosts.network}.{number}", bridge, own)
        lines = [f"{name} slots={slots}\n" for name in names]
        Path(hosts.hostfile).write_text("".join(lines))
        (folder / "ssh_config").write_text(_ssh_config(hosts))
        (folder / "rsh").write_text(f'#!/bin/sh\nexec ssh -F {folder}/ssh_config "$@"\n')
        (folder / "rsh").chmod(0o755)
        for name in names:
            _await_host(hosts, name)
        yield hosts
    finally:
        for name in names:
            hosts.kill(name)
            run("ip", "netns", "del", name, check=False)
        run("ip", "link", "del", bridge, check=False)


def _find_network() -> str:
    """An unused subnet of this machine."""
    known = run("ip", "-brief", "address")
    first = os.getpid() % 250
    numbers = (1 + (first + more) % 250 for more in range(250))
    return next(net for number in numbers if f" {(net := f'10.213.{number}')}." not in known)


def _start_host(hosts: Hosts, name: str, address: str, bridge: str, hidden: Path | None) -> None:
    run("ip", "netns", "add", name)
    run("ip", "link", "add", f"v{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", f"v{name}", "master", bridge, "up")
    run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        run("ip", "-n", name, "link", "set", device, "up")
    key = hosts.folder / f"{name}.key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    settings = {
        "ListenAddress": address,
        "HostKey": key,
        "PidFile": hosts.folder / f"{name}.pid",
        "AuthorizedKeysFile": hosts.folder / "key.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PrintMotd": "no",
    }
    config = hosts.folder / f"{name}.conf"
    config.write_text("".join(f"{word} {value}\n" for word, value in settings.items()))
    mount = 'mount -t tmpfs none "$3" && ' if hidden else ""
    shell = f'hostname "$1" && {mount}exec /usr/sbin/sshd -f "$2"'
    there = ("unshare", "--uts", "sh", "-c", shell, "sh", name, str(config), str(hidden))
    run("ip", "netns", "exec", name, *there)
    with (hosts.folder / "known_hosts").open("a") as file:
        file.write(f"{name} {' '.join(Path(f'{key}.pub').read_text().split()[:2])}\n")


def _ssh_config(hosts: Hosts) -> str:
    entries = [
        f"Host {name}\n  HostName {hosts.network}.{number}\n  HostKeyAlias {name}\n"
        for number, name in enumerate(hosts.names, start=1)
    ]
    common = {
        "User": "root",
        "IdentityFile": hosts.folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": hosts.folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "LogLevel": "ERROR",
    }
    text = "".join(f"  {word} {value}\n" for word, value in common.items())
    return "".join((*entries, "Host *\n", text))


def _await_host(hosts: Hosts, name: str) -> None:
    config = str(hosts.folder / "ssh_config")
    command = ("ssh", "-F", config, "-o", "BatchMode=yes", name, "true")
    if not wait_until(lambda: not subprocess.run(command, capture_output=True).returncode, 20):  # noqa: PLW1510
        raise RuntimeError(f"host {name} does not answer")
