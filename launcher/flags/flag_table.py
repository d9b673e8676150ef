"""All flags, as an argparse parser, and the readers of their values."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias, TypeVar

import yaml

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    SearchBudget,
    parse_budget,
    parse_share,
)
from autoconf_launch.core import ConfigError

from ..machine import DEFAULT_HOSTFILE
from ..request import OwnKnob, Processes

_T = TypeVar("_T")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_WORDS: dict[str, Processes] = {"gpu": "gpu", "cpu": "cpu", "auto": "auto"}
_UNSET = "-1"  # DeepSpeed's way to say that a count is not given


def parse_bytes(text: str) -> int:
    """Bytes of ``2GB``, ``512MiB``, ``1.5g``; decimal unless written with an i."""
    if re.fullmatch(_NUMBER, text.strip()):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no unit; write for example {text.strip()}GB"
        )
    match = re.fullmatch(rf"({_NUMBER})\s*([kmgt]?i?)b?", text.strip().lower())
    unit = {**_UNITS, **_BINARY}.get(match[2]) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; write for example 2GB or 512MiB"
        )
    return size


def parse_seconds(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m``, ``1h``."""
    match = re.fullmatch(rf"({_NUMBER})([smh]?)", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write for example 90, 90s or 10m"
        )
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def parse_count(text: str) -> int | None:
    """A whole number of at least 1; DeepSpeed's -1 leaves it open."""
    return None if text == _UNSET else _whole(text, least=1)


def parse_search_budget(text: str) -> SearchBudget:
    """See :func:`autoconf_launch.autotuner.space.budget.parse_budget`."""
    return _parse_or_explain(parse_budget, text)


def parse_gain(text: str) -> float:
    """``2%`` or ``0.02`` as 0.02."""
    return _parse_or_explain(lambda given: parse_share(given, "--good-enough"), text)


def _parse_or_explain(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error


def parse_steps(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, least=0)


def parse_trackers(text: str) -> tuple[str, ...]:
    """Names between commas, each once; ``none`` stands alone for no tracker."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    if "" in names or ("none" in names and len(names) > 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be names of trackers with commas between them, or just none"
        )
    return () if names == ("none",) else names


def parse_node_rank(text: str) -> int | None:
    """A whole number of at least 0; DeepSpeed's -1 leaves it open."""
    return None if text == _UNSET else _whole(text, least=0)


def parse_processes(text: str) -> Processes | None:
    """A count, or torchrun's ``gpu``, ``cpu``, ``auto``."""
    return _WORDS[text] if text in _WORDS else parse_count(text)


def parse_nodes(text: str) -> int | None:
    """A count, or torchrun's range ``N:N``, whose ends must be equal."""
    least, colon, most = text.partition(":")
    if colon and least != most:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a range, but a launch has a fixed number of hosts; give one number"
        )
    return parse_count(least)


def parse_port(text: str) -> int:
    """A TCP port."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 1 to 65535")
    return int(text)


def parse_endpoint(text: str) -> tuple[str, int | None]:
    """``HOST[:PORT]``; an IPv6 address stands in brackets."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]]+))(?::([0-9]+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} must be HOST:PORT")
    return match[1] or match[2], parse_port(match[3]) if match[3] else None


def parse_name(text: str) -> tuple[str, str]:
    """``KEY=FLAG``: a canonical key and the script's own argument for it."""
    key, equals, flag = (part.strip() for part in text.partition("="))
    if not (key and equals and flag):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be KEY=FLAG, such as train_micro_batch_size_per_gpu=--batch_size"
        )
    return key, flag


def parse_knob(text: str) -> OwnKnob:
    """``NAME=[value, ...]``: an argument, variable or key with the values to search."""
    name, _, listed = (part.strip() for part in text.partition("="))
    try:
        values = yaml.safe_load(listed) if listed else None
    except yaml.YAMLError:
        values = None
    plain = isinstance(values, list) and not any(isinstance(v, (list, dict)) for v in values)
    if not name or not plain or not values:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no list of values; write for example '--num_workers=[0,2,4]'"
        )
    return OwnKnob(name=name, values=tuple(values))


def parse_restarts(text: str) -> int:
    """Nothing but 0."""
    if text != "0":
        raise argparse.ArgumentTypeError(
            f"{text!r} must be 0: a failed rank ends the launch, and nothing starts it again"
        )
    return 0


def _whole(text: str, *, least: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least {least}")
    return int(text)


class _Once(argparse.Action):
    """``action="once"``: given twice, a flag is an error, where others take the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store it."""
        seen: set[str] = namespace.__dict__.setdefault("_given", set())
        if option_string and self.dest in seen:
            parser.error(f"{option_string} is given twice; give it once")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


class VerbParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would print and leave."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("action", "once", _Once)

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, and where to look."""
        where = "" if message.endswith("?") else f"; see {self.prog} --help."
        raise ConfigError(f"{_plain_error(message)}{where}")


def _plain_error(message: str) -> str:
    """What argparse says, without its ``argument`` before a flag's name."""
    found = re.fullmatch(r"argument (\S+): (.*)", message, flags=re.DOTALL)
    if not found:
        return f"{message[0].upper()}{message[1:]}"
    flag, what = found.groups()
    if what.startswith("--"):
        return what
    return f"{flag} {what}" if what.startswith(("'", '"')) else f"{flag}: {what}"


def unknown_flag(name: str, known: Iterable[str], where: str) -> ConfigError:
    """What to raise for a flag that nobody knows: the nearest one, or where all are."""
    dashed = {flag.replace("_", "-"): flag for flag in known if flag.startswith("--")}
    close = difflib.get_close_matches(name.replace("_", "-"), dashed, n=1)
    hint = f"did you mean '{dashed[close[0]]}'?" if close else f"see {where}."
    return ConfigError(f"Unknown flag {name}; {hint}")


LAUNCHERS = ("pdsh", "openmpi", "mvapich", "mpich", "impi", "slurm")
_NOT_FLAGS = frozenset({"arg_mappings", "enabled"})
_BOOLEANS = frozenset(
    name for name, field in AutotuningSettings.model_fields.items() if field.annotation is bool
)
_Group: TypeAlias = argparse._ArgumentGroup


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{_plain_error(message)}.")


def make_parser() -> argparse.ArgumentParser:
    """A parser of our own flags; errors are ConfigErrors. Names are never abbreviated."""
    parser = _Parser(
        prog="autoconf-launch",
        usage="autoconf-launch [tune|run] [flags] script.py [arguments]",
        description="Launch a training, or find its best configuration first: tune ends with it, "
        "run trains with it. Flags are those of deepspeed and torchrun; - and _ are equal in "
        "their names.",
        allow_abbrev=False,
    )
    _add_script(parser.add_argument_group("script"))
    _add_hosts(parser.add_argument_group("hosts and slots"))
    _add_rendezvous(parser.add_argument_group("rendezvous"))
    _add_ranks(parser.add_argument_group("ranks"))
    _add_remote(parser.add_argument_group("other hosts"))
    _add_tuning(parser.add_argument_group("tuning"))
    return parser


def _add_script(group: _Group) -> None:
    add = group.add_argument
    add("-m", "--module", action="store_true", help="the script is a module's name")
    add("--no_python", action="store_true", help="the script is a program, not Python")
    add("--no_local_rank", action="store_true", help="add no --local_rank=N to its arguments")
    add("-q", "--quiet", action="store_true")
    add("--log_level", choices=("debug", "info", "warning", "error", "critical"), default="info")


def _add_hosts(group: _Group) -> None:
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


def _add_rendezvous(group: _Group) -> None:
    add = group.add_argument
    add("--master_addr", metavar="HOST", help="default: the first host")
    port_help = "default: a free one on one host, else 29500"
    add("--master_port", type=parse_port, metavar="PORT", help=port_help)
    add(
        "--rdzv_endpoint",
        type=parse_endpoint,
        metavar="HOST:PORT",
        help="torchrun's name for both",
    )
    add("--rdzv_backend", choices=("static", "c10d"), help="both mean MASTER_ADDR and MASTER_PORT")
    add("--rdzv_id", metavar="NAME", help="TORCHELASTIC_RUN_ID of the ranks")
    add("--max_restarts", type=parse_restarts, metavar="0", help="a failed rank ends the launch")


def _add_ranks(group: _Group) -> None:
    add = group.add_argument
    bind_help = "give each rank its own cores and set OMP_NUM_THREADS to their number"
    add("--bind_cores_to_rank", action="store_true", help=bind_help)
    add(
        "--bind_core_list",
        metavar="0,2-4",
        help="use only these cores; implies --bind_cores_to_rank",
    )
    logs = ("--enable_each_rank_log", "--log_dir")
    logs_help = "write one log file per rank instead of to the screen"
    add(*logs, dest="rank_log_folder", metavar="DIR", help=logs_help)
    add("-r", "--redirects", choices=("3",), help="accepted with --log_dir, which redirects both")
    add("--save_pid", action="store_true", help="write our pid to <temporary folder>/<pid>.ds")
    add("--monitor_interval", metavar="S", help="no effect")
    add("--start_method", metavar="NAME", help="no effect")


def _add_remote(group: _Group) -> None:
    add = group.add_argument
    add("--launcher", type=str.lower, choices=LAUNCHERS)
    add("--launcher_args", metavar="'ARGS'", help="one quoted string")
    add("--ssh_port", type=parse_port, metavar="PORT")
    add("--no_ssh_check", action="store_true")
    add("--venv_script", metavar="FILE")


def _add_tuning(group: _Group) -> None:
    add = group.add_argument
    add("--autotuning", choices=("tune", "run"))
    add("--fresh", action="store_true", help="move old results aside")
    add(
        "--no_history",
        action="store_true",
        help="neither read nor write step times of earlier tunes",
    )
    add("--allow_global_batch_change", action="store_true")
    keep_help = "pin today's global batch where a DeepSpeed file states none"
    add("--keep_global_batch", action="store_true", help=keep_help)
    add("--tuning_space", metavar="FILE", help="knobs to search, instead of the shipped ones")
    add("--dialect", metavar="NAME", help="the script's framework; default: the one that fits")
    add(
        "--arg",
        action="append",
        type=parse_name,
        metavar="KEY=FLAG",
        help="the script's FLAG sets KEY",
    )
    knob_help = "a knob of the script to search: '--num_workers=[0,2,4]'"
    add("--knob", action="append", type=parse_knob, metavar="NAME=[...]", help=knob_help)
    add("--memory_limit", type=parse_bytes, metavar="SIZE", help="per rank, such as 2GB")
    add("--max_parallel_trials", type=parse_count, metavar="N", help=_PARALLEL)
    timeout_help = "longest duration of a trial (default: 600 s)"
    add("--trial_timeout", type=parse_seconds, default=600.0, metavar="S", help=timeout_help)
    stall_help = "longest time without a step (default: 120 s)"
    add("--stall_timeout", type=parse_seconds, default=120.0, metavar="S", help=stall_help)
    budget_help = (
        "limit of the search: 20m, 30trials (that of your own configuration included), $15, or "
        "several separated by commas"
    )
    add("--budget", type=parse_search_budget, metavar="LIMIT", help=budget_help)
    enough_help = "stop when nothing left could gain more (2%% at normal effort); 0: never"
    add("--good_enough", type=parse_gain, metavar="SHARE", help=enough_help)
    soak_help = "steps of the winner's verification run (default: 50, fewer if slow); 0: no run"
    add("--soak_steps", type=parse_steps, metavar="N", help=soak_help)
    report_help = "send every run to wandb, tensorboard, mlflow (comma-separated), or none"
    add("--report_to", type=parse_trackers, default=(), metavar="NAMES", help=report_help)
    add("--tracker_project", metavar="NAME", help="W&B project or MLflow experiment")
    add("--wandb_api_key_file", metavar="FILE", help="a file with the key on its first line")
    _add_settings(add)


def _add_settings(add: Callable[..., object]) -> None:
    """A flag for each key of the autotuning section."""
    for name in AutotuningSettings.model_fields:
        if name in _BOOLEANS - _NOT_FLAGS:
            add(f"--{name}", nargs="?", const="true", metavar="true|false")
        elif name == "effort":
            add("--effort", metavar="quick|normal|thorough", help=_EFFORT)
        elif name not in _NOT_FLAGS:
            add(f"--{name}", metavar="VALUE")


_PARALLEL = (
    "trials side by side (default: as many as GPUs allow; 1 on a CPU, whose memory they share)"
)
_EFFORT = (
    "how small a difference is resolved: quick 6%% (the playoff takes 15%% of the search's time), "
    "normal 3%% (30%%; the default), thorough 1.5%% (70%%)"
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
