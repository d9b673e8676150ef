"""A launch: its parameters, which are flags of ``tune``, ``run``, ``doctor`` and keywords."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from .asked import (
    ARGUMENTS,
    CORES,
    ENDPOINT,
    ENGINE,
    FILE,
    HOSTS,
    NAME,
    NODE_RANK,
    NODES,
    OF_A_TUNE,
    ON,
    PORT,
    RESTARTS,
    RESULTS,
    SCRIPT,
    TRACKER_NAMES,
    TUNING,
    Header,
    RankCount,
    TuneQuestion,
    ValueUnit,
    asked_part,
    parameter,
    question,
)

DEFAULT_HOSTFILE = "/job/hostfile"
"""DeepSpeed's; if it does not exist, only this machine."""
LOCAL_RANK_FLAG = "--local_rank"
"""The word that DeepSpeed's launcher and torch.distributed.launch give each rank."""

_SLOTS = ValueUnit(metavar="HOST:SLOT,SLOT@HOST")
_PATH = ValueUnit(metavar="FILE")
_RENDEZVOUS, _RANKS, _IGNORED = "rendezvous", "ranks", "accepted without effect"
OF_ANY_START = (HOSTS, _RENDEZVOUS, _RANKS)
"""Groups of flags that say how ranks are started, with a tune or without."""
OF_ANY_LAUNCH = {"--autotuning", "--memory_limit", "--quiet", "-q", "--log_level"}
"""Flags in groups of a tune that a launch without one has a use for, too."""
WITHOUT_EFFECT = {
    "no_ssh_check": (
        ValueUnit(action="store_const", const=True),
        "every host is asked before anything is started",
    ),
    "monitor_interval": (ValueUnit(metavar="S"), "ranks are watched without polling"),
    "start_method": (NAME, "a script is always started as a process of its own"),
}
"""Flags that are taken and change nothing."""


@question
class HostChoice:
    """Hosts and slots; the empty choice is all that this machine shows."""

    nodes: int | None = parameter(
        HOSTS,
        "the first N hosts",
        NODES,
        default=None,
        flag="--num_nodes --nnodes",
    )
    hostfile: str | None = parameter(
        HOSTS,
        f"lines of: HOST slots=N (default: {DEFAULT_HOSTFILE}, if it exists)",
        _PATH,
        default=None,
        flag="-H --hostfile",
    )
    include: str = parameter(
        HOSTS, "use only these slots", _SLOTS, default="", flag="-i --include"
    )
    exclude: str = parameter(HOSTS, "use all others", _SLOTS, default="", flag="-e --exclude")
    node_rank: int | None = parameter(
        HOSTS,
        "start only this host's ranks",
        NODE_RANK,
        default=None,
        flag="_",
    )
    by_hand: bool = parameter(
        HOSTS,
        "never reach another host; needs --node_rank",
        ON,
        default=False,
        flag="--no_ssh",
    )
    standalone: bool = parameter(
        HOSTS, "this machine alone, without a hostfile", ON, default=False
    )
    force_multi: bool = parameter(
        HOSTS, "treat one host as several (.deepspeed_env)", ON, default=False, flag="_"
    )


@question
class RemoteAccess:
    """The start of ranks on other hosts."""

    engine: str = parameter(
        HOSTS,
        "what reaches other hosts: ssh (default), slurm inside an allocation, sbatch for a job of "
        "Slurm each, kubernetes for a Job each, ray, pdsh, or an MPI's mpirun",
        ENGINE,
        default="ssh",
        flag="--launcher",
    )
    arguments: tuple[str, ...] = parameter(
        HOSTS,
        "further words for the launcher's program; of kubernetes: a Pod's manifest",
        ARGUMENTS,
        default=(),
        flag="--launcher_args",
    )
    port: int | None = parameter(
        HOSTS, "of every host (default: ssh's own)", PORT, default=None, flag="--ssh_port"
    )
    venv_script: str | None = parameter(
        HOSTS, "a shell script there that is sourced first", _PATH, default=None, flag="_"
    )


@question
class Rendezvous:
    """The ranks' meeting point; a port of None is a free one on one host, else 29500."""

    address: str | None = parameter(
        _RENDEZVOUS,
        "default: the first host",
        ValueUnit(metavar="HOST"),
        default=None,
        flag="--master_addr",
    )
    port: int | None = parameter(
        _RENDEZVOUS,
        "default: a free one of the first host; by hand 29500",
        PORT,
        default=None,
        flag="--master_port",
    )
    endpoint: tuple[str, int | None] | None = parameter(
        _RENDEZVOUS,
        "torchrun's name for both",
        ENDPOINT,
        default=None,
        flag="--rdzv_endpoint",
    )
    backend: str | None = parameter(
        _RENDEZVOUS,
        "both mean MASTER_ADDR and MASTER_PORT",
        ValueUnit(known=("static", "c10d")),
        default=None,
        flag="--rdzv_backend",
    )
    run_id: str | None = parameter(
        _RENDEZVOUS, "TORCHELASTIC_RUN_ID of the ranks", NAME, default=None, flag="--rdzv_id"
    )
    max_restarts: int | None = parameter(
        _RENDEZVOUS,
        "a failed rank ends the launch",
        RESTARTS,
        default=None,
        flag="_",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreBinding:
    """Each rank gets separate cores, out of ``cores``; None: out of all physical ones."""

    cores: tuple[int, ...] | None = None


@question
class TrackingChoice:
    """Trackers that keep the runs of a study; none by default."""

    trackers: tuple[str, ...] = parameter(
        RESULTS,
        "send every run to wandb, tensorboard, mlflow (comma-separated), or none",
        TRACKER_NAMES,
        default=(),
        flag="--report_to",
    )
    project: str | None = parameter(
        RESULTS,
        "W&B project or MLflow experiment",
        NAME,
        default=None,
        flag="--tracker_project",
    )
    wandb_key_file: str | None = parameter(
        RESULTS,
        "a file with the key on its first line",
        _PATH,
        default=None,
        flag="--wandb_api_key_file",
    )


@question
class HowStarted:
    """The program to start: a script, a module or a program, with a tune or without."""

    autotuning: Literal["tune", "run"] | None = parameter(
        TUNING,
        "the same as the verbs tune and run, as in DeepSpeed's launcher has it",
        ValueUnit(known=("tune", "run")),
        default=None,
    )
    is_module: bool = parameter(
        SCRIPT, "the script is a module's name", ON, default=False, flag="-m --module"
    )
    is_program: bool = parameter(
        SCRIPT, "the script is a program, not Python", ON, default=False, flag="--no_python"
    )
    local_rank_flag: str | None = parameter(
        SCRIPT,
        "no --local_rank=N, which a script gets only if it declares it",
        ValueUnit(action="store_const", const=""),
        default=None,
        flag="--no_local_rank --use_env",
    )


@question
class OnHosts(RankCount):
    """The hosts that they are started on."""

    hosts: HostChoice = asked_part(default=HostChoice())
    remote: RemoteAccess = asked_part(default=RemoteAccess())


_EXCLUSIVE = (
    ("--module", "--no_python"),
    ("--include", "--exclude"),
    ("--quiet", "--log_level"),
    *((flag, one) for one in ("--include", "--exclude") for flag in ("--num_nodes", "--num_gpus")),
    *(
        ("--standalone", other)
        for other in ("--hostfile", "--master_addr", "--master_port", "--node_rank")
    ),
    *(("--rdzv_endpoint", other) for other in ("--standalone", "--master_addr", "--master_port")),
)


@question
class LaunchRequest(OnHosts, TuneQuestion, HowStarted):
    """A launch or tune. Times are in seconds; None leaves a choice to us.

    Attributes:
        script: path, module name or program, as ``kind`` says.
        python: path of the interpreter for it; None: ours.
        python_flags: its flags before the script, one word each, such as ``-Wignore``.
        prefix: words before each rank's command that place it, such as ``numactl -N 0``.
        alone: one process without the variables of a distributed launch, as ``python train.py``
            starts it; the script starts other ranks by itself, or none.
        started: number of ranks that it was seen to start; None: one for each device.
        variables: of the ranks, in addition to our environment, from a wrapped launcher.
        notes: sentences on accepted flags without effect.
    """

    script: str
    script_args: tuple[str, ...] = ()
    kind: Literal["script", "module", "program"] = "script"
    python: str | None = None
    python_flags: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    alone: bool = False
    started: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    dry_run: bool = parameter(
        RESULTS,
        "list the candidates with predicted times, minutes and money; no trial is run",
        ON,
        default=False,
        flag="_",
    )
    tracking: TrackingChoice = asked_part(default=TrackingChoice())
    quiet: bool = parameter(
        RESULTS, "print errors and the result alone", ON, default=False, flag="-q --quiet"
    )
    log_level: str = parameter(
        RESULTS,
        "of the launcher's own log; default info",
        ValueUnit(known=("debug", "info", "warning", "error", "critical")),
        default="info",
        flag="_",
    )
    rendezvous: Rendezvous = asked_part(default=Rendezvous())
    binds_cores: bool = parameter(
        _RANKS,
        "give each rank its own cores and set OMP_NUM_THREADS to their number",
        ON,
        default=False,
        flag="--bind_cores_to_rank",
    )
    cores: tuple[int, ...] | None = parameter(
        _RANKS,
        "use only these cores; implies --bind_cores_to_rank",
        CORES,
        default=None,
        flag="--bind_core_list",
    )
    rank_log_folder: str | None = parameter(
        _RANKS,
        "write one log file per rank instead of to the screen",
        ValueUnit(metavar="DIR"),
        default=None,
        flag="--enable_each_rank_log --log_dir",
    )
    redirects: str | None = parameter(
        _RANKS,
        "accepted with --log_dir, which redirects both",
        ValueUnit(known=("3",)),
        default=None,
        flag="-r --redirects",
    )
    save_pid: bool = parameter(
        _RANKS, "write our pid to <temporary folder>/<pid>.ds", ON, default=False, flag="_"
    )
    ignored: Mapping[str, Any] | None = parameter(
        _IGNORED, "flags that change nothing", NAME, default=None, flag="_", parts=WITHOUT_EFFECT
    )
    header = Header(
        verb="tune",
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
        groups=(*OF_A_TUNE, SCRIPT, *OF_ANY_START, _IGNORED),
    )
    exclusive = (*_EXCLUSIVE, *TuneQuestion.exclusive)

    @property
    def binding(self) -> CoreBinding | None:
        return CoreBinding(cores=self.cores) if self.binds_cores or self.cores else None

    def contradictions(self) -> Iterator[str]:
        """Sentences on flags that lack another flag, too."""
        yield from super().contradictions()
        if self.hosts.standalone and (self.hosts.nodes or 1) > 1:
            yield (
                f"--standalone is this machine alone, but --num_nodes is {self.hosts.nodes}; "
                "omit one of them"
            )
        if self.redirects and not self.rank_log_folder:
            yield "--redirects needs a folder for the files; give it with --log_dir DIR"
        if self.tracking.project and not self.tracking.trackers:
            yield "--tracker_project names a tracker's project; give --report_to too"
        if self.tracking.wandb_key_file and "wandb" not in self.tracking.trackers:
            yield "--wandb_api_key_file is for W&B; give --report_to wandb too"


def tune_request(asked: TuneQuestion, script: str, arguments: Sequence[str]) -> LaunchRequest:
    """A tune of a script with its arguments."""
    given = {one.name: getattr(asked, one.name) for one in fields(asked) if one.init}
    words = (script, *arguments)
    return LaunchRequest(
        script=script, script_args=words[1:], autotuning="tune", argv=words, **given
    )


@question
class DoctorCommand(OnHosts):
    """``doctor`` of the command line."""

    header = Header(
        verb="doctor",
        usage="autoconf-launch doctor [flags]",
        description="Measure what the hosts of a launch can do: ports between them, a matrix "
        "product in each slot, an all-reduce between each pair of hosts, clocks, the shared "
        "folder. Takes half a minute.",
        examples=(
            "autoconf-launch doctor",
            "autoconf-launch doctor --hostfile hosts.txt --save cluster.yaml",
            "autoconf-launch doctor --measure-gpu --save gpu.yaml",
        ),
        groups=(HOSTS, "output"),
    )
    measure_gpu: bool = parameter(
        "output",
        "measure products, attention, copies and an all-reduce, too, in at most two minutes; they "
        "narrow the error band of a GPU that our tables lack",
        ON,
        default=False,
    )
    save: Path | None = parameter(
        "output",
        "write a cluster file for plan, with all rates that were measured",
        FILE,
        default=None,
    )
    json: bool = parameter("output", "print one JSON document", ON, default=False)
