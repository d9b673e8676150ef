"""Flags of ``deepspeed`` and ``torchrun`` that are refused or change nothing, and why.

Not: those that are offered (``flag_table``).
"""

from __future__ import annotations

_ELASTIC = "a launch has a fixed number of hosts and ranks; give --num_nodes and --num_gpus"
_STREAMS = "a rank's output goes to the screen, or whole to a file with --log_dir DIR"
_AGENT = "it belongs to torch's elastic agent, which is not used here; leave it out"

REFUSED = {
    "--min_elastic_nodes": _ELASTIC,
    "--max_elastic_nodes": _ELASTIC,
    "--elastic_training": _ELASTIC,
    "--tee": _STREAMS,
    "-t": _STREAMS,
    "--local_ranks_filter": _STREAMS,
    "--duplicate_stdout_filters": _STREAMS,
    "--duplicate_stderr_filters": _STREAMS,
    "--rdzv_conf": _AGENT,
    "--role": _AGENT,
    "--event_log_handler": _AGENT,
    "--logs_specs": _AGENT,
    "--local_addr": _AGENT,
    "--shutdown_timeout": _AGENT,
    "--run_path": "each rank is a process of its own; give the script without it",
    "--numa_binding": "use --bind_cores_to_rank or --bind_core_list",
    "--signals_to_handle": "SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to every rank",
    "--virtual_local_rank": "LOCAL_RANK counts the devices of CUDA_VISIBLE_DEVICES",
}
"""Why a flag is not offered, and what to do."""

WITHOUT_EFFECT = {
    "monitor_interval": "ranks are watched without polling",
    "start_method": "a script is always started as a process of its own",
    "launcher": "ranks are started on this machine, without ssh",
    "launcher_args": "ranks are started on this machine, without ssh",
    "ssh_port": "ranks are started on this machine, without ssh",
    "no_ssh_check": "ranks are started on this machine, without ssh",
    "venv_script": "ranks run in the environment of this launcher",
}
"""Flags that are taken and change nothing, by their name in the parsed arguments."""
