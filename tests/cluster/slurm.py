"""A real Slurm of virtual nodes on this machine: no systemd, no control groups, no accounting."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .launching import wait_until

IS_INSTALLED = os.geteuid() == 0 and all(map(shutil.which, ("slurmctld", "slurmd", "munged")))
REASON = "needs root, slurm-wlm and munge"
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=2,sched_min_interval=100000
ReturnToService=2
SlurmdTimeout=10
KillWait=3
MinJobAge=600
JobRequeue=1
GresTypes=gpu
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs={cpus} \
RealMemory=8000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO DefMemPerCPU=100
"""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A running one; ``variables`` are the environment of its commands."""

    folder: Path
    nodes: int

    @property
    def variables(self) -> dict[str, str]:
        return {
            **{name: v for name, v in os.environ.items() if not name.startswith("SLURM")},
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command: str, check: bool = True) -> str:
        answer = subprocess.run(
            command, env=self.variables, capture_output=True, text=True, check=False, timeout=60
        )
        if check and answer.returncode:
            raise RuntimeError(f"{command}: {answer.stderr}")
        return answer.stdout

    def jobs(self) -> list[str]:
        """Number and state of each that waits or runs."""
        return self.run("squeue", "--noheader", "--format=%i %T").splitlines()

    def is_idle_within(self, timeout_s: float) -> bool:
        """True if no job waits or runs any more."""
        return wait_until(lambda: not self.jobs(), timeout_s)

    def start_node(self, name: str) -> None:
        self.run("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", name)

    @contextmanager
    def without_node(self, name: str) -> Iterator[None]:
        """Kill the daemon of a node, which the controller then misses."""
        os.kill(int((self.folder / f"slurmd.{name}.pid").read_text()), signal.SIGKILL)
        try:
            yield
        finally:
            self.start_node(name)


@contextmanager
def running(*, nodes: int = 4, gpus: int = 4, cpus: int = 4) -> Iterator[Slurm]:
    """Bring one up, and take it down with all its jobs."""
    slurm = Slurm(folder=Path(tempfile.mkdtemp(prefix="slurm-")), nodes=nodes)
    try:
        _start(slurm, gpus, cpus)
        yield slurm
    finally:
        _stop(slurm)


def _start(slurm: Slurm, gpus: int, cpus: int) -> None:
    folder, nodes = slurm.folder, slurm.nodes
    (folder / "state").mkdir()
    folder.chmod(0o755)
    _start_munge(folder)
    for number in range(gpus):  # clones of /dev/null: a regular file is refused
        os.mknod(folder / f"gpu{number}", 0o020666, os.makedev(1, 3))
    port = _free_ports(nodes + 1)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(
        CONFIG.format(
            folder=folder,
            host=host,
            port=port,
            nodes=nodes,
            gpus=gpus,
            cpus=cpus,
            first=port + 1,
            last=port + nodes,
        )
    )
    gres = f"NodeName=n[1-{nodes}] Name=gpu File={folder}/gpu[0-{gpus - 1}]\n"
    (folder / "gres.conf").write_text(gres)
    slurm.run("slurmctld", "-f", str(folder / "slurm.conf"))
    for number in range(1, nodes + 1):
        (folder / f"spool.n{number}").mkdir()
        slurm.start_node(f"n{number}")
    states = ("sinfo", "-h", "-N", "-o", "%t")
    if not wait_until(lambda: slurm.run(*states, check=False).split() == ["idle"] * nodes, 30):
        raise RuntimeError("the nodes of Slurm are not idle")


def _stop(slurm: Slurm) -> None:
    slurm.run("scancel", "--user", "root", check=False)
    wait_until(lambda: not slurm.run("squeue", "-h", check=False), 10)
    for path in (*slurm.folder.glob("slurm*.pid"), slurm.folder / "munged.pid"):
        with suppress(OSError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)


def _start_munge(folder: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    paths = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munged.pid"}
    paths |= {"log-file": folder / "munged.log", "seed-file": folder / "munge.seed"}
    words = (f"--{name}={path}" for name, path in paths.items())
    subprocess.run(("munged", "--force", *words), check=True, capture_output=True, timeout=30)


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    for first in range(21000 + os.getpid() % 5000, 32000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no ports are free")
