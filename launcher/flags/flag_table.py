"""All flags of a launch, as an argparse parser, and those that are refused or change nothing."""

from __future__ import annotations

import argparse
from typing import TypeAlias, get_args

from autoconf_launch.autotuner.space import AutotuningSettings

from ..request import BATCH, DEFAULT_HOSTFILE, KUBERNETES, RAY
from .values import (
    parse_bytes,
    parse_count,
    parse_endpoint,
    parse_gain,
    parse_knob,
    parse_name,
    parse_node_rank,
    parse_nodes,
    parse_port,
    parse_processes,
    parse_restarts,
    parse_search_budget,
    parse_seconds,
    parse_steps,
    parse_trackers,
)
from .verb_parser import VerbParser

LAUNCHERS = (
    *("ssh", "slurm", BATCH, KUBERNETES, RAY),
    *("pdsh", "openmpi", "mvapich", "mpich", "impi", "bcprun"),
)
_SETTINGS = AutotuningSettings.model_fields
_Group: TypeAlias = argparse._ArgumentGroup


def make_parser() -> VerbParser:
    """A parser of our own flags; errors are ConfigErrors. Names are never abbreviated."""
    parser = VerbParser(
        prog="autoconf-launch tune",
        usage="autoconf-launch [tune|run] [flags] script.py [arguments]",
        description="Find the best configuration of a training: tune ends with it, run trains "
        "with it. Without a verb the script is launched as it is. Flags are those of deepspeed "
        "and torchrun; - and _ are equal in their names. All but those of a script, its hosts "
        "and ranks only matter to tune and run.",
        examples=(
            "autoconf-launch tune --num_gpus 2 train.py --batch_size 8",
            "autoconf-launch tune --budget 20m --effort quick run_clm.py --deepspeed ds.json",
            "autoconf-launch tune '--knob=--num_workers=[0,2,4]' train.py --batch_size 8",
            "autoconf-launch run torchrun --nproc_per_node 8 train.py",
        ),
    )
    _add_tuning(parser.add_argument_group("tuning"))
    _add_meaning(parser.add_argument_group("what may change"))
    _add_space(parser.add_argument_group("what is searched"))
    _add_trials(parser.add_argument_group("trials"))
    _add_results(parser.add_argument_group("results"))
    _add_script(parser.add_argument_group("script"))
    add_host_flags(parser.add_argument_group("hosts and slots"))
    _add_rendezvous(parser.add_argument_group("rendezvous"))
    _add_ranks(parser.add_argument_group("ranks"))
    _add_ignored(parser.add_argument_group("accepted without effect"))
    return parser


_OF_A_TUNE = {"tuning", "what may change", "what is searched", "trials", "results"}
_OF_ANY_LAUNCH = {"--autotuning", "--memory_limit", "--quiet", "-q", "--log_level"}


def tuning_flags(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Flags that say something of a search, and nothing of a launch without one."""
    groups = (group for group in parser._action_groups if group.title in _OF_A_TUNE)
    actions = (action for group in groups for action in group._group_actions)
    return frozenset(name for one in actions for name in one.option_strings) - _OF_ANY_LAUNCH


def _add_tuning(group: _Group) -> None:
    add = group.add_argument
    modes_help = "the same as the verbs tune and run, as in DeepSpeed's launcher has it"
    add("--autotuning", choices=("tune", "run"), help=modes_help)
    budget_help = (
        "limit of the command, its profile run included: 20m, 30trials (that of your own "
        "configuration included), $15, or several separated by commas"
    )
    add("--budget", type=parse_search_budget, metavar="LIMIT", help=budget_help)
    cluster_help = "whose network joins the hosts, for predictions: a file of doctor --save"
    add("--cluster", metavar="CLUSTER", help=cluster_help)
    enough_help = "stop when nothing left could gain more (2%% at normal effort); 0: never"
    add("--good_enough", type=parse_gain, metavar="SHARE", help=enough_help)
    _add_settings(group, "effort", "metric")


def _add_meaning(group: _Group) -> None:
    add = group.add_argument
    allow_help = "candidates may have another global batch than yours"
    add("--allow_global_batch_change", action="store_true", help=allow_help)
    keep_help = "pin today's global batch where a DeepSpeed file states none"
    add("--keep_global_batch", action="store_true", help=keep_help)
    _add_settings(group, "max_train_batch_size")


def _add_space(group: _Group) -> None:
    add = group.add_argument
    knob_help = "an argument of the script to search: '--num_workers=[0,2,4]'"
    add("--knob", action="append", type=parse_knob, metavar="NAME=[...]", help=knob_help)
    add("--tuning_space", metavar="FILE", help="knobs to search, instead of the shipped ones")
    _add_settings(
        group,
        "fast",
        "min_train_micro_batch_size_per_gpu",
        "max_train_micro_batch_size_per_gpu",
        "num_tuning_micro_batch_sizes",
        "mp_size",
        "model_info",
        "tuner_type",
        "strategy",
        "tuner_early_stopping",
        "tuner_num_trials",
        "seed",
    )


def _add_trials(group: _Group) -> None:
    add = group.add_argument
    limit_help = "of each rank, such as 20GB; on a GPU with the CUDA context, emulated on CPU"
    add("--memory_limit", type=parse_bytes, metavar="SIZE", help=limit_help)
    add("--max_parallel_trials", type=parse_count, metavar="N", help=_PARALLEL)
    timeout_help = "longest duration of a trial (default: 600 s)"
    add("--trial_timeout", type=parse_seconds, default=600.0, metavar="S", help=timeout_help)
    stall_help = "longest time without a step (default: 120 s)"
    add("--stall_timeout", type=parse_seconds, default=120.0, metavar="S", help=stall_help)
    soak_help = "steps of the winner's verification run (default: 50, fewer if slow); 0: no run"
    add("--soak_steps", type=parse_steps, metavar="N", help=soak_help)
    _add_settings(group, "start_profile_step", "end_profile_step")


def _add_results(group: _Group) -> None:
    add = group.add_argument
    _add_settings(group, "results_dir", "exps_dir", "overwrite")
    add("--fresh", action="store_true", help="move old results aside")
    trust_help = "use a results folder that other users own or can write"
    add("--trust_results", action="store_true", help=trust_help)
    dry_help = "list the candidates with predicted times, minutes and money; no trial is run"
    add("--dry_run", action="store_true", help=dry_help)
    history_help = "neither read nor write step times of earlier tunes"
    add("--no_history", action="store_true", help=history_help)
    report_help = "send every run to wandb, tensorboard, mlflow (comma-separated), or none"
    add("--report_to", type=parse_trackers, default=(), metavar="NAMES", help=report_help)
    add("--tracker_project", metavar="NAME", help="W&B project or MLflow experiment")
    add("--wandb_api_key_file", metavar="FILE", help="a file with the key on its first line")
    add("-q", "--quiet", action="store_true", help="print errors and the result alone")
    levels = ("debug", "info", "warning", "error", "critical")
    add("--log_level", choices=levels, help="of the launcher's own log; default info")


def _add_settings(group: _Group, *names: str) -> None:
    """Flags of keys of the autotuning section, with the words that its schema has."""
    add = group.add_argument
    for name in names:
        field = _SETTINGS[name]
        about = (field.description or "").replace("%", "%%")
        value = "|".join(_words(field.annotation)) or "VALUE"
        if field.annotation is bool:
            add(f"--{name}", nargs="?", const="true", metavar="true|false", help=about)
        else:
            add(f"--{name}", metavar=value, help=about)


def _add_script(group: _Group) -> None:
    add = group.add_argument
    add("-m", "--module", action="store_true", help="the script is a module's name")
    add("--no_python", action="store_true", help="the script is a program, not Python")
    local_rank = ("--no_local_rank", "--use_env")
    local_rank_help = "no --local_rank=N, which a script gets only if it declares it"
    add(*local_rank, action="store_true", help=local_rank_help)
    add("--dialect", metavar="NAME", help="the script's framework; default: the one that fits")
    arg_help = "the script's FLAG sets KEY"
    add("--arg", action="append", type=parse_name, metavar="KEY=FLAG", help=arg_help)


def add_host_flags(group: _Group) -> None:
    """Flags of hosts, slots and what reaches them."""
    add = group.add_argument
    processes = ("--num_gpus", "--num_accelerators", "--nproc_per_node")
    add(*processes, type=parse_processes, metavar="N", help="ranks on each host; gpu, cpu, auto")
    add("--num_nodes", "--nnodes", type=parse_nodes, metavar="N", help="the first N hosts")
    file_help = f"lines of: HOST slots=N (default: {DEFAULT_HOSTFILE}, if it exists)"
    add("-H", "--hostfile", metavar="FILE", help=file_help)
    add("-i", "--include", default="", metavar="HOST:SLOT,SLOT@HOST", help="use only these slots")
    add("-e", "--exclude", default="", metavar="HOST:SLOT,SLOT@HOST", help="use all others")
    add("--node_rank", type=parse_node_rank, metavar="K", help="start only this host's ranks")
    add("--no_ssh", action="store_true", help="never reach another host; needs --node_rank")
    add("--standalone", action="store_true", help="this machine alone, without a hostfile")
    add("--force_multi", action="store_true", help="treat one host as several (.deepspeed_env)")
    engine_help = "what reaches other hosts: ssh (default), slurm inside an allocation, "
    engine_help += "sbatch for a job of Slurm each, kubernetes for a Job each, ray, pdsh, or an "
    engine_help += "MPI's mpirun"
    add("--launcher", type=str.lower, choices=LAUNCHERS, help=engine_help)
    args_help = "further words for the launcher's program; of kubernetes: a Pod's manifest"
    add("--launcher_args", metavar="'ARGS'", help=args_help)
    add("--ssh_port", type=parse_port, metavar="PORT", help="of every host (default: ssh's own)")
    add("--venv_script", metavar="FILE", help="a shell script there that is sourced first")


def _add_rendezvous(group: _Group) -> None:
    add = group.add_argument
    add("--master_addr", metavar="HOST", help="default: the first host")
    port_help = "default: a free one of the first host; by hand 29500"
    add("--master_port", type=parse_port, metavar="PORT", help=port_help)
    endpoint_help = "torchrun's name for both"
    add("--rdzv_endpoint", type=parse_endpoint, metavar="HOST:PORT", help=endpoint_help)
    add("--rdzv_backend", choices=("static", "c10d"), help="both mean MASTER_ADDR and MASTER_PORT")
    add("--rdzv_id", metavar="NAME", help="TORCHELASTIC_RUN_ID of the ranks")
    add("--max_restarts", type=parse_restarts, metavar="0", help="a failed rank ends the launch")


def _add_ranks(group: _Group) -> None:
    add = group.add_argument
    bind_help = "give each rank its own cores and set OMP_NUM_THREADS to their number"
    add("--bind_cores_to_rank", action="store_true", help=bind_help)
    list_help = "use only these cores; implies --bind_cores_to_rank"
    add("--bind_core_list", metavar="0,2-4", help=list_help)
    logs = ("--enable_each_rank_log", "--log_dir")
    logs_help = "write one log file per rank instead of to the screen"
    add(*logs, dest="rank_log_folder", metavar="DIR", help=logs_help)
    add("-r", "--redirects", choices=("3",), help="accepted with --log_dir, which redirects both")
    add("--save_pid", action="store_true", help="write our pid to <temporary folder>/<pid>.ds")


def _add_ignored(group: _Group) -> None:
    add = group.add_argument
    add("--no_ssh_check", action="store_true", help=WITHOUT_EFFECT["no_ssh_check"])
    for name, value in (("monitor_interval", "S"), ("start_method", "NAME")):
        add(f"--{name}", metavar=value, help=WITHOUT_EFFECT[name])


def _words(annotation: object) -> tuple[str, ...]:
    """The names that a setting can have, where it has names."""
    inner = [name for part in get_args(annotation) for name in get_args(part) or (part,)]
    return tuple(name for name in inner if isinstance(name, str))


_PARALLEL = (
    "trials side by side (default: as many as GPUs and other hosts allow; 1 on one CPU, whose "
    "memory they share, and 1 job in a queue)"
)
_ELASTIC = "a launch has a fixed number of hosts and ranks; give --num_nodes and --num_gpus"
_STREAMS = "a rank's output goes to the screen, or all of it to a file with --log_dir DIR"
_AGENT = "it belongs to torch's elastic agent, which is not used here; omit it"

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
    "--type": "FASOP's trainings are presets; write autoconf-launch plan --preset fasop/bert",
    "--heterogeneous": "FASOP's mixed clusters are presets with -heterogeneous at their end",
    "--pareto": "FASOP's sweep is autoconf-launch plan --preset fasop/gpt2XL-pareto",
    "--virtual_local_rank": "LOCAL_RANK counts the devices of CUDA_VISIBLE_DEVICES",
}
"""Why a flag is not offered, and what to do."""

WITHOUT_EFFECT = {
    "monitor_interval": "ranks are watched without polling",
    "start_method": "a script is always started as a process of its own",
    "no_ssh_check": "every host is asked before anything is started",
}
"""Flags that are taken and change nothing, by their name in the parsed arguments."""
