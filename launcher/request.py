"""One command line as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autoconf_launch.autotuner.space import SearchBudget
from autoconf_launch.core import KnobValue

from .plan import StepSize

Processes: TypeAlias = int | Literal["gpu", "cpu", "auto"]
"""Ranks on each host; ``gpu``: one per GPU, ``cpu``: one per core, ``auto``: the first of them."""


DEFAULT_HOSTFILE = "/job/hostfile"
"""DeepSpeed's; one that does not exist means this machine alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChoice:
    """Which hosts and slots; the empty choice is all that this machine shows.

    Attributes:
        hostfile: its path; None: the default one, where there is one.
        include: slots to take, as written (``filters``); excludes ``exclude`` and ``nodes``.
        exclude: slots to skip.
        nodes: how many hosts, from the first; None: all.
        node_rank: number of this machine among the hosts when each is started by hand.
        by_hand: never reach another host (``--no_ssh``).
        standalone: this machine alone, whatever the default hostfile says.
        force_multi: treat one host as if there were several.
    """

    hostfile: str | None = None
    include: str = ""
    exclude: str = ""
    nodes: int | None = None
    node_rank: int | None = None
    by_hand: bool = False
    standalone: bool = False
    force_multi: bool = False


KUBERNETES, RAY = "kubernetes", "ray"
"""Values of ``--launcher`` for pods, and for nodes of a Ray cluster."""
BATCH = "sbatch"
"""Value of ``--launcher`` for a job of Slurm for each launch."""
QUEUES = (BATCH, KUBERNETES)
"""Launchers that queue a job for each launch, and find its hosts."""
UNNAMED = (*QUEUES, "bcprun")
"""Launchers whose hosts have no names that could be said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAccess:
    """How ranks are started on other hosts.

    Attributes:
        engine: what runs a command there (``--launcher``).
        arguments: further words for it (``--launcher_args``).
        port: of ssh there; None: ssh's own setting.
        venv_script: a shell script there that every agent sources first.
        step: what an agent's step has of each host for itself; None: it shares all.
    """

    engine: str = "ssh"
    arguments: tuple[str, ...] = ()
    port: int | None = None
    venv_script: str | None = None
    step: StepSize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where the ranks meet.

    Attributes:
        address: of the first host; None: its name, or this machine.
        port: None: a free one on one host, else DeepSpeed's 29500.
        run_id: torchrun's name of the run, which scripts may read; None: none.
    """

    address: str | None = None
    port: int | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreBinding:
    """Each rank gets cores of its own, of ``cores``; None: of all physical ones."""

    cores: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingChoice:
    """Which trackers keep the runs of a study; none unless asked for.

    Attributes:
        trackers: names, each once.
        project: W&B project or MLflow experiment; None: the tracker's own variable, or ours.
        wandb_key_file: has the key on its first line; None: what W&B finds itself.
    """

    trackers: tuple[str, ...] = ()
    project: str | None = None
    wandb_key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKnob:
    """A knob that the user gave with its values: ``--knob '--num_workers=[0,2,4]'``."""

    name: str
    values: tuple[KnobValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWords:
    """What the launcher's flags say of the script and its settings.

    Attributes:
        dialect: name of the one to take; None: the first that fits.
        arguments: canonical key and the script's argument for it (``--arg``).
        knobs: further knobs with values (``--knob``).
        overrides: keys of the autotuning section that were given as flags.
        allow_global_batch_change: candidates may have another global batch than the user's.
        keep_global_batch: no candidate has another one.
    """

    dialect: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    knobs: tuple[OwnKnob, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    allow_global_batch_change: bool = False
    keep_global_batch: bool = False


LOCAL_RANK_FLAG = "--local_rank"
"""The word that DeepSpeed's launcher and torch.distributed.launch give each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What the user asked for. Times are in seconds; None leaves a choice to us.

    Attributes:
        processes: ranks on each host: GPUs, or processes on a machine without any.
        script: path, module name or program, as ``kind`` says.
        python: path of the interpreter that was named for it; None: ours.
        python_flags: its flags before the script, one word each, such as ``-Wignore``.
        prefix: words before each rank's command that place it, such as ``numactl -N 0``.
        alone: one process without the variables of a distributed launch, as ``python train.py``
            starts it; the script starts further ranks by itself, or none.
        started: ranks that it was seen to start; None: one for each device.
        local_rank_flag: the script's argument for a rank's number on its host, such as
            ``--local_rank``; empty: none; None: the one that the script declares, if any.
        binding: None: ranks share all cores.
        rank_log_folder: one log file per rank goes here; None: the output is ours.
        cluster: whose network predictions take for that of the hosts, as ``plan --cluster`` has
            it; None: it is not known.
        tuning_space: path of a file whose lists are searched instead of the shipped ones.
        words: on the script's framework and settings.
        variables: what the ranks get beyond our environment, as a wrapped launcher gives it.
        save_pid: write our process number to a file while the ranks live.
        budget: what the search may cost; None: no limit.
        good_enough: possible gain, a share, below which the search ends; 0: never. None: as the
            effort has it.
        soak_steps: optimizer steps of the winner's soak; 0: none. None: as many as pay.
        dry_run: say what would be tried, and try nothing.
        trust_results: use results folders that other users own or can write.
        history: whether what earlier tunes measured of the same model counts.
        notes: sentences on flags that were taken and change nothing.
    """

    script: str
    script_args: tuple[str, ...] = ()
    kind: Literal["script", "module", "program"] = "script"
    python: str | None = None
    python_flags: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    processes: Processes | None = None
    alone: bool = False
    started: int | None = None
    hosts: HostChoice = HostChoice()
    remote: RemoteAccess = RemoteAccess()
    rendezvous: Rendezvous = Rendezvous()
    binding: CoreBinding | None = None
    local_rank_flag: str | None = None
    rank_log_folder: str | None = None
    save_pid: bool = False
    autotuning: Literal["tune", "run"] | None = None
    fresh: bool = False
    trust_results: bool = False
    dry_run: bool = False
    history: bool = True
    words: UserWords = UserWords()
    cluster: str | None = None
    tuning_space: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    memory_limit_bytes: int | None = None
    max_parallel_trials: int | None = None
    trial_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    soak_steps: int | None = None
    budget: SearchBudget | None = None
    good_enough: float | None = None
    tracking: TrackingChoice = TrackingChoice()
    backend: str = "local"
    quiet: bool = False
    log_level: str = "info"
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
