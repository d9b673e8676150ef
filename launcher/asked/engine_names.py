"""The engines by the words of ``--launcher``, and facts about them before one is made."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Protocol, cast

from ..extension_points import find_reference, load_extension, references
from .units import open_name

ENGINES = MappingProxyType(
    {
        "ssh": "autoconf_launch.launcher.engines.ssh:SshEngine",
        "slurm": "autoconf_launch.launcher.engines.slurm:SrunEngine",
        "sbatch": "autoconf_launch.launcher.engines.slurm:SbatchEngine",
        "kubernetes": "autoconf_launch.launcher.engines.kubernetes:KubernetesEngine",
        "ray": "autoconf_launch.launcher.engines.ray:RayEngine",
        "pdsh": "autoconf_launch.launcher.engines.ssh:PdshEngine",
        "openmpi": "autoconf_launch.launcher.engines.mpi:OpenMpiEngine",
        "mvapich": "autoconf_launch.launcher.engines.mpi:HydraEngine",
        "mpich": "autoconf_launch.launcher.engines.mpi:HydraEngine",
        "impi": "autoconf_launch.launcher.engines.mpi:HydraEngine",
        "bcprun": "autoconf_launch.launcher.engines.bcp:BcprunEngine",
    }
)
"""Name -> ``module:attribute``; others: the entry-point group ``autoconf_launch.engine``."""
_POINT = "engine"
ENGINE = open_name("launcher", *ENGINES, more=lambda: references(_POINT, ENGINES))


class HostSource(Enum):
    """The side that knows the hosts of a launch."""

    USER = "a hostfile"
    ENGINE = "an allocation or a cluster"
    LAUNCH = "any hosts, which have no names before the launch"


class EngineFacts(Protocol):
    """Facts of a class of engines.

    Attributes:
        host_source: the side that knows its hosts.
        takes_this_machine: it also starts launches whose only host is this machine.
        queue: the scheduler that queues each launch as a job and finds its hosts; empty: none.
        prints_launches: ``--dry_run`` of a launch prints the launches that it would request.
    """

    host_source: ClassVar[HostSource] = HostSource.USER
    takes_this_machine: ClassVar[bool] = False
    queue: ClassVar[str] = ""
    prints_launches: ClassVar[bool] = False


def engine_facts(name: str) -> type[EngineFacts]:
    """The class of an engine.

    Raises:
        ConfigError: no engine has this name.
    """
    reference = find_reference(_POINT, ENGINES, name, where="--launcher")
    return cast("type[EngineFacts]", load_extension(_POINT, reference))
