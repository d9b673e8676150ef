"""Which hosts and slots a request means, and which host is this one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.core import ConfigError, HardwareError, nearest_known, plural

from ..hosts import LOCAL, Gpu, describe_hosts, find_ray_nodes, is_this_machine
from ..input_file import input_text
from ..request import (
    DEFAULT_HOSTFILE,
    RAY,
    UNNAMED,
    HostChoice,
    LaunchRequest,
    RemoteAccess,
)
from .cores import usable_cores

_LINE = re.compile(r"(\S+)\s+slots=([0-9]+)(?=\s|#|$)")
_MOST_SLOTS = 4096
_MOST_HOSTS, _MOST_RANKS = 2**16, 2**20
"""Limits of one launch, above any that is known, so that a damaged file costs no minutes."""
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]{0,254}")
"""What can be handed to ssh, whose settings may put it into a shell's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlots:
    """A host and the numbers of its slots, in the order of the ranks that they get."""

    host: str
    slots: tuple[int, ...]


def read_hostfile(path: str) -> tuple[HostSlots, ...]:
    """The hosts of a file, in its order.

    Raises:
        ConfigError: it cannot be read, or is not a hostfile.
    """
    try:
        text = input_text(Path(path))
    except FileNotFoundError:
        raise ConfigError(
            f"Hostfile {path} does not exist; fix --hostfile, or omit it to use this "
            "machine alone."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(f"Hostfile {path} cannot be read: {reason}.") from error
    return parse_hostfile(text, path)


def parse_hostfile(text: str, name: str) -> tuple[HostSlots, ...]:
    """The hosts of a hostfile's text; ``name`` is for messages.

    Blank lines, and what follows ``#``, are skipped; further words on a line mean nothing.

    Raises:
        ConfigError: a line of another form, a host that stands twice, no host at all, or too many.
    """
    found: dict[str, int] = {}
    hosts: list[HostSlots] = []
    ranks = 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        host = _parse_line(words, f"Line {number} of hostfile {name}")
        if host.host in found:
            raise ConfigError(
                f"Line {number} of hostfile {name} names host {host.host} again, after line "
                f"{found[host.host]}; give each host one line."
            )
        found[host.host] = number
        hosts.append(host)
        ranks += len(host.slots)
        if len(hosts) > _MOST_HOSTS or ranks > _MOST_RANKS:
            raise ConfigError(
                f"Line {number} of hostfile {name} makes it {len(hosts)} hosts with {ranks} "
                f"slots, but it must have at most {_MOST_HOSTS} hosts with {_MOST_RANKS} slots."
            )
    if not hosts:
        raise ConfigError(f"Hostfile {name} names no host; write lines such as: worker-0 slots=4")
    return tuple(hosts)


def _parse_line(words: str, where: str) -> HostSlots:
    match = _LINE.match(words)
    if not match:
        raise ConfigError(f"{where} is {words!r}, but must be: HOST slots=N")
    user, at, host = match[1].rpartition("@")
    if at and _HOST.fullmatch(host):
        raise ConfigError(
            f"{where} names {match[1]}, but a line has only the host; write {host}, and give the "
            f"user {user} to ssh in ~/.ssh/config."
        )
    if not _HOST.fullmatch(match[1]):
        raise ConfigError(
            f"{where} names host {match[1]!r}, but a host's name has letters, digits, dots, "
            "colons, hyphens and underscores, and does not begin with a hyphen."
        )
    digits = match[2].lstrip("0")
    if not digits or len(digits) > 4 or int(digits) > _MOST_SLOTS:
        raise ConfigError(
            f"{where} has slots={match[2]}, but must have 1 to {_MOST_SLOTS}; "
            "put # before it to skip the host."
        )
    return HostSlots(host=match[1], slots=tuple(range(int(digits))))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFilter:
    """A host that a filter names, and slots of it; None: all."""

    host: str
    slots: tuple[int, ...] | None


def parse_filter(text: str, flag: str) -> tuple[HostFilter, ...]:
    """Read ``HOST[:SLOT[,SLOT...]][@HOST...]``; "" names nothing.

    Raises:
        ConfigError: text of another form; ``flag`` is named.
    """
    return tuple(_parse_host(part, text, flag) for part in text.split("@")) if text else ()


def filter_slots(
    pool: tuple[HostSlots, ...], *, include: str = "", exclude: str = ""
) -> tuple[HostSlots, ...]:
    """What of the pool is used, in the pool's order; hosts without a slot are skipped.

    Raises:
        ConfigError: both are given, one is malformed, or names what the pool lacks.
    """
    if include and exclude:
        raise ConfigError("--include and --exclude cannot be given together; give one of them.")
    if include:
        return select(pool, parse_filter(include, "--include"), "--include")
    named = select(pool, parse_filter(exclude, "--exclude"), "--exclude")
    gone = {(host.host, slot) for host in named for slot in host.slots}
    left = (
        HostSlots(host=host.host, slots=tuple(s for s in host.slots if (host.host, s) not in gone))
        for host in pool
    )
    return tuple(host for host in left if host.slots)


def select(
    pool: tuple[HostSlots, ...], filters: tuple[HostFilter, ...], flag: str
) -> tuple[HostSlots, ...]:
    """The slots that the filters name, in the pool's order, each once.

    Raises:
        ConfigError: a host or a slot that the pool lacks; ``flag`` is named.
    """
    slots = {host.host: host.slots for host in pool}
    chosen: dict[str, set[int]] = {}
    for one in filters:
        if one.host not in slots:
            raise ConfigError(
                f"{flag} names host {one.host!r}, which is not among the hosts; "
                f"{nearest_known(one.host, slots)}"
            )
        wanted = slots[one.host] if one.slots is None else one.slots
        missing = [slot for slot in wanted if slot not in slots[one.host]]
        if missing:
            has = ", ".join(map(str, slots[one.host]))
            raise ConfigError(f"{flag} names slot {missing[0]} of {one.host}, which has: {has}.")
        chosen.setdefault(one.host, set()).update(wanted)
    return tuple(
        HostSlots(host=host.host, slots=tuple(s for s in host.slots if s in chosen[host.host]))
        for host in pool
        if host.host in chosen
    )


def _parse_host(part: str, text: str, flag: str) -> HostFilter:
    match = re.fullmatch(r"([^\s:,]+)(?::([0-9]{1,6}(?:,[0-9]{1,6})*))?", part)
    if not match:
        raise ConfigError(
            f"{flag} is {text!r}; {part!r} in it must be HOST or HOST:SLOT,SLOT "
            "(for example worker-0@worker-1:0,2)."
        )
    slots = tuple(map(int, match[2].split(","))) if match[2] else None
    return HostFilter(host=match[1], slots=slots)


def choose_hosts(
    request: LaunchRequest,
    gpus: tuple[Gpu, ...],
    tell: Callable[[str], object] = lambda text: None,
) -> tuple[HostSlots, ...]:
    """The hosts of a launch with the slots that get ranks, in order.

    ``gpus`` are those visible on this machine; without any, slots here are processes and
    there are as many as are asked for. ``tell`` hears once that a queue is awaited.

    Raises:
        ConfigError: the hostfile or a filter cannot be read, or they leave nothing.
        HardwareError: this machine has fewer GPUs than are asked for.
    """
    choice = request.hosts
    pool = _hostfile_pool(choice, gpus)
    if pool is None and request.remote.engine in UNNAMED:
        pool = _queued_pool(request, tell)
    elif pool is None and _in_allocation(choice, request.remote):
        pool = _ray_pool(request) if request.remote.engine == RAY else _allocated_pool(request)
    elif pool is None:
        pool = _local_pool(request, gpus)
    elif isinstance(request.processes, str):
        raise ConfigError(
            f"--nproc_per_node {request.processes} counts what this machine has, but a hostfile "
            "says what each host has; give one of the two."
        )
    hosts = filter_slots(pool, include=choice.include, exclude=choice.exclude)
    hosts = _limit_hosts(hosts, request, gpus)
    if not hosts:
        raise ConfigError("--exclude leaves no slot to launch on; exclude fewer.")
    return hosts


def unused_allocation(choice: HostChoice, access: RemoteAccess) -> str | None:
    """A sentence on a Slurm allocation of several nodes that a launch would not use."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    is_other = access.engine != RemoteAccess().engine
    if is_other or choice.node_rank is not None or choice.standalone:
        return None
    if has_hostfile(choice) or not nodes.isdecimal() or int(nodes) < 2:
        return None
    return (
        f"This is a Slurm allocation of {int(nodes)} nodes, but only this one is used; add "
        "--launcher slurm to use all."
    )


_BY_HOSTFILE = "with --hostfile FILE for several hosts, or once on each with --no_ssh --node_rank"
_STARTERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun", f"{_BY_HOSTFILE} K"),
    ("PMI_SIZE", "PMI_RANK", "mpirun", f"{_BY_HOSTFILE} K"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", "with --launcher slurm for several nodes"),
)
"""Variables of how many processes there are and which one this is, who set them, what to do."""


def require_one_start(choice: HostChoice) -> None:
    """Check that no other starter has started the launcher once for each rank.

    Raises:
        ConfigError: one has, and it is not said which host this is.
    """
    if choice.node_rank is not None or choice.standalone:
        return
    rows = (*_torchrun(), *_STARTERS)
    for size, number, starter, remedy in rows:
        count, which = os.environ.get(size, ""), os.environ.get(number, "?")
        if count.isdecimal() and int(count) > 1:
            raise ConfigError(
                f"{starter} has started autoconf-launch {count} times (this is number {which}), "
                f"but it starts the ranks itself; start it once, {remedy}."
            )


def _torchrun() -> Iterator[tuple[str, str, str, str]]:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        node = os.environ.get("GROUP_RANK", "K")
        yield "WORLD_SIZE", "RANK", "torchrun", f"{_BY_HOSTFILE} {node}"


def pod_text() -> str | None:
    """A sentence on the pod of Kubernetes that this is, with its number in an Indexed Job."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return None
    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    if not index.isdecimal():
        return "This is a pod of Kubernetes; --launcher kubernetes starts ranks in others."
    return (
        f"This is pod {index} of an Indexed Job of Kubernetes, whose other pods are not reached; "
        f"start each with --no_ssh --node_rank {index}, or use --launcher kubernetes."
    )


def own_index(request: LaunchRequest, hosts: tuple[HostSlots, ...]) -> int | None:
    """Which of the hosts is this machine; None where ranks are started on others, too.

    Raises:
        ConfigError: it has to be said, or it is named twice.
    """
    choice, last = request.hosts, len(hosts) - 1
    if choice.node_rank is not None:
        if choice.node_rank > last:
            raise ConfigError(f"--node_rank is {choice.node_rank}, but must be from 0 to {last}.")
        return choice.node_rank
    if choice.by_hand and last:
        raise ConfigError(
            f"--no_ssh starts only this machine's ranks; say which of the {last + 1} hosts it is "
            f"with --node_rank K, from 0 to {last}."
        )
    if request.remote.engine == RAY:  # which counts what runs on this machine, too
        return None
    ours = [host.host for host in hosts if is_this_machine(host.host)]
    if len(ours) > 1:
        raise ConfigError(
            f"{ours[0]} and {ours[1]} are both this machine; name it once, or start each with "
            "--no_ssh --node_rank K."
        )
    return 0 if ours and not last else None


def has_hostfile(choice: HostChoice) -> bool:
    """Whether a hostfile says what the hosts are: the one given, or DeepSpeed's."""
    default = not choice.standalone and Path(DEFAULT_HOSTFILE).is_file()
    return choice.hostfile is not None or default


def _hostfile_pool(choice: HostChoice, gpus: tuple[Gpu, ...]) -> tuple[HostSlots, ...] | None:
    if not has_hostfile(choice):
        return None
    return tuple(
        _visible_slots(host, gpus) for host in read_hostfile(choice.hostfile or DEFAULT_HOSTFILE)
    )


def names_hosts(choice: HostChoice, access: RemoteAccess) -> bool:
    """Whether a hostfile, a Slurm allocation or a Ray cluster says what the hosts are."""
    return has_hostfile(choice) or _in_allocation(choice, access)


def _in_allocation(choice: HostChoice, access: RemoteAccess) -> bool:
    has_nodes = access.engine in ("slurm", RAY)
    return has_nodes and not (choice.standalone or has_hostfile(choice))


def _allocated_pool(request: LaunchRequest) -> tuple[HostSlots, ...]:
    """The allocation's nodes, each with as many slots as are asked for, else with its GPUs."""
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes or shutil.which("scontrol") is None:
        raise ConfigError(
            "--launcher slurm starts ranks on the nodes of an allocation, and this is none "
            "(SLURM_JOB_NODELIST is not set); use it inside salloc or sbatch, or queue a job for "
            "each launch with --launcher sbatch."
        )
    command = ("scontrol", "show", "hostnames", nodes)
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        raise HardwareError(f"scontrol does not know the nodes {nodes}: {answer.stderr.strip()}")
    return _described_pool(tuple(answer.stdout.split()), request)


def _ray_pool(request: LaunchRequest) -> tuple[HostSlots, ...]:
    """The cluster's nodes, each with the GPUs that Ray counts; one without has processes."""
    nodes, asked = find_ray_nodes(), request.processes
    processes = asked if isinstance(asked, int) else 1
    gpus = (0 if asked == "cpu" else node.gpus for node in nodes)
    slots = (tuple(range(count or processes)) for count in gpus)
    return tuple(HostSlots(host=n.name, slots=own) for n, own in zip(nodes, slots, strict=True))


def _queued_pool(request: LaunchRequest, tell: Callable[[str], object]) -> tuple[HostSlots, ...]:
    """Hosts that a job will have, whichever they are."""
    names = tuple(f"node-{number}" for number in range(request.hosts.nodes or 1))
    return _described_pool(names, request, tell)


def _described_pool(
    names: tuple[str, ...],
    request: LaunchRequest,
    tell: Callable[[str], object] = lambda text: None,
) -> tuple[HostSlots, ...]:
    """As many slots of each host as are asked for, else its GPUs."""
    if isinstance(request.processes, int):
        return tuple(HostSlots(host=name, slots=tuple(range(request.processes))) for name in names)
    found = describe_hosts(names, request.remote, tell)
    slots = (tuple(gpu.index for gpu in each.gpus) or (0,) for each in found)
    return tuple(HostSlots(host=name, slots=own) for name, own in zip(names, slots, strict=True))


def _visible_slots(host: HostSlots, gpus: tuple[Gpu, ...]) -> HostSlots:
    if not gpus or not is_this_machine(host.host):
        return host
    if len(host.slots) > len(gpus):
        raise HardwareError(
            f"The hostfile gives {host.host} {plural(len(host.slots), 'slot')}, but "
            f"{_visible_text(gpus)}; fix the hostfile or CUDA_VISIBLE_DEVICES."
        )
    return replace(host, slots=_numbers(gpus)[: len(host.slots)])


def _numbers(gpus: tuple[Gpu, ...]) -> tuple[int, ...]:
    return tuple(gpu.index for gpu in gpus)


_OWN_GPU = "and each rank needs its own"


def _visible_text(gpus: tuple[Gpu, ...]) -> str:
    """``1 GPU is visible (0: NVIDIA L4), and each rank needs its own``."""
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
    verb = "is" if len(gpus) == 1 else "are"
    why = "as a process sees one MIG slice at most" if gpus[0].is_slice else _OWN_GPU
    return f"{plural(len(gpus), 'GPU')} {verb} visible ({names}), {why}"


def _local_pool(request: LaunchRequest, gpus: tuple[Gpu, ...]) -> tuple[HostSlots, ...]:
    choice = request.hosts
    nodes = choice.nodes or 1
    slots = _numbers(gpus) or _processes(request)
    if nodes == 1:
        return (HostSlots(host=_name_in_filter(choice), slots=slots),)
    address = request.rendezvous.address
    if choice.node_rank is None or address is None:
        raise ConfigError(
            f"--num_nodes is {nodes}, but without a hostfile no other host is known; give "
            "--hostfile FILE, or start each host with --node_rank K --master_addr HOST."
        )
    others = (HostSlots(host=f"node-{rank}", slots=slots) for rank in range(1, nodes))
    return (HostSlots(host=address, slots=slots), *others)


def _processes(request: LaunchRequest) -> tuple[int, ...]:
    """Slots of a machine without GPUs: as many as are asked for, or those that are named."""
    if request.processes == "gpu":
        raise HardwareError(
            "--nproc_per_node is gpu, but no GPU is visible; give a number of processes instead."
        )
    if isinstance(request.processes, str):
        return tuple(range(usable_cores()))
    named = (one.slots or () for one in parse_filter(request.hosts.include, "--include"))
    return tuple(sorted({*range(request.processes or 1)}.union(*named)))


def _name_in_filter(choice: HostChoice) -> str:
    """How the user's filter calls this machine."""
    filters = parse_filter(choice.include or choice.exclude, "--include or --exclude")
    return next((one.host for one in filters if is_this_machine(one.host)), LOCAL)


def _limit_hosts(
    hosts: tuple[HostSlots, ...], request: LaunchRequest, gpus: tuple[Gpu, ...]
) -> tuple[HostSlots, ...]:
    nodes, processes = request.hosts.nodes, request.processes
    if nodes is not None and nodes > len(hosts):
        raise ConfigError(
            f"--num_nodes is {nodes}, but the hostfile names "
            f"{plural(len(hosts), 'host')}; ask for fewer."
        )
    hosts = hosts[:nodes]
    if not isinstance(processes, int):
        return hosts
    small = next((host for host in hosts if len(host.slots) < processes), None)
    if small is None:
        return tuple(replace(host, slots=host.slots[:processes]) for host in hosts)
    if gpus and is_this_machine(small.host):
        raise HardwareError(
            f"--num_gpus is {processes}, but {_visible_text(gpus)}; ask for fewer, or fix "
            "CUDA_VISIBLE_DEVICES."
        )
    raise ConfigError(
        f"--num_gpus is {processes}, but host {small.host} has "
        f"{plural(len(small.slots), 'slot')}; ask for fewer."
    )
