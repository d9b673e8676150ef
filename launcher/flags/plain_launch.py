"""A request back to the flags of a plain launch. Not: their parsing (flags)."""

from __future__ import annotations

from ..machine import our_python
from ..request import HostChoice, LaunchRequest, Rendezvous


def launch_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Flags that start the same ranks without tuning; ``python`` itself stands for one alone."""
    binding = request.binding
    other = request.python if request.kind != "program" else None
    named = request.alone or other is not None
    cores = ",".join(map(str, binding.cores)) if binding and binding.cores else None
    return (
        *_valued("--num_gpus", request.processes),
        *_host_flags(request.hosts),
        *_rendezvous_flags(request.rendezvous),
        *_switch("--module", request.kind == "module" and not named),
        *_switch("--no_python", request.kind == "program" or (named and not request.alone)),
        *_switch("--no_local_rank", not request.local_rank_argument and not request.alone),
        *_switch("--bind_cores_to_rank", binding is not None),
        *_valued("--bind_core_list", cores),
        *_valued("--enable_each_rank_log", request.rank_log_folder),
        *_switch("--save_pid", request.save_pid),
        *_switch("--", request.alone),
        *((other or our_python(),) if named else ()),
        *_switch("-m", named and request.kind == "module"),
    )


def _host_flags(hosts: HostChoice) -> tuple[str, ...]:
    return (
        *_valued("--num_nodes", hosts.nodes),
        *_valued("--hostfile", hosts.hostfile),
        *_valued("--include", hosts.include or None),
        *_valued("--exclude", hosts.exclude or None),
        *_valued("--node_rank", hosts.node_rank),
        *_switch("--no_ssh", hosts.by_hand),
        *_switch("--standalone", hosts.standalone),
        *_switch("--force_multi", hosts.force_multi),
    )


def _rendezvous_flags(rendezvous: Rendezvous) -> tuple[str, ...]:
    return (
        *_valued("--master_addr", rendezvous.address),
        *_valued("--master_port", rendezvous.port),
        *_valued("--rdzv_id", rendezvous.run_id),
    )


def _valued(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))


def _switch(flag: str, wanted: bool) -> tuple[str, ...]:
    return (flag,) if wanted else ()
