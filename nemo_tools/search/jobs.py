"""Launches of candidates on a cluster, as text.

The order of options is that of NVIDIA's writer (auto_configurator, 24.12), so that files of both
can be compared line by line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..export import nemo1_script
from ..rules import minutes_limit
from .candidate_file import SearchFolder
from .candidates import SearchCandidate
from .question import RECIPE, SearchQuestion
from .settings import ClusterKind, ClusterSettings, SearchSettings

JOBS_AT_ONCE = 8
"""Jobs that wait or run: what runs out of memory rules out larger ones among the others."""
SHEBANG = "#!/usr/bin/env bash"
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]*")
"""Characters of an sbatch option that needs no quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job of Slurm.

    Attributes:
        command: a text for a shell.
        further: commands after it, each a step of its own.
        tasks: of all nodes; None: so many of each node.
        dependency: ``singleton``, or numbers of jobs that have ended before.
        output: path of the job's own log.
        cluster: what is asked for; None and empty leave an option out.
        flags: of ``srun``, already quoted.
        time: Slurm's time limit.
    """

    name: str
    command: str
    nodes: int
    tasks_per_node: int
    cluster: ClusterSettings
    flags: str
    time: str
    further: tuple[str, ...] = ()
    tasks: int | None = None
    dependency: str | tuple[int, ...] | None = None
    output: str | None = None


def sbatch_text(job: SlurmJob) -> str:
    """The whole script, with its last newline."""
    options = "".join(f"#SBATCH {option}\n" for option in _options(job))
    commands = (job.command, *job.further)
    steps = "".join(f"srun {job.flags} sh -c {_quote(text)}\n\n" for text in commands)
    return f"{SHEBANG}\n{options}\n{steps}set +x\n"


def mount_pair(mount: str) -> str:
    """``source:destination`` of a mount; a bare path stands at the same place inside."""
    return mount if ":" in mount else f"{mount}:{mount}"


def container_flags(container: str, mounts: Iterable[str], others: Iterable[str], log: str) -> str:
    """Flags of ``srun`` for a container; ``log`` is a path without its suffix."""
    parts = [
        f"--container-image {shlex.quote(container)}",
        f"--container-mounts {shlex.quote(','.join(map(mount_pair, mounts)))}",
        *(shlex.join(_words(other)) for other in others),
        f"-o {shlex.quote(log)}.log",
        f"-e {shlex.quote(log)}.error",
    ]
    return f"{' '.join(parts)} "


def _options(job: SlurmJob) -> Iterator[str]:
    cluster = job.cluster
    yield f"--nodes={job.nodes}"
    if job.tasks is not None:
        yield f"--ntasks={job.tasks}"
    yield f"--ntasks-per-node={job.tasks_per_node}"
    for name in ("gpus_per_task", "gpus_per_node"):
        if (number := getattr(cluster, name)) is not None:
            yield f"--{name.replace('_', '-')}={number}"
    if job.dependency:
        yield f"--dependency={_option(_dependency(job.dependency))}"
    for flag, value in (("-p", cluster.partition), ("-A", cluster.account)):
        if value:
            yield f"{flag} {_option(value)}"
    yield f"--job-name={_option(job.name)}"
    if cluster.mem is not None:
        yield f"--mem={_option(cluster.mem)}"
    yield from (f"--{name}" for name in ("exclusive", "overcommit") if getattr(cluster, name))
    texts = {
        "exclude": _option(",".join(cluster.exclude)),
        "output": job.output and _option(job.output),
        "comment": cluster.comment and _quote(_one_line(cluster.comment)),
        "nodelist": cluster.nodelist and _option(cluster.nodelist),
        "time": _option(job.time),
        "qos": cluster.qos and _option(cluster.qos),
        "gres": cluster.gres and _option(cluster.gres),
    }
    yield from (f"--{name}={text}" for name, text in texts.items() if text)
    yield from map(_further_option, cluster.sbatch_args)


def sbatch_words(cluster: ClusterSettings, name: str) -> tuple[str, ...]:
    """The same options as words of sbatch itself, for jobs of our own launches."""
    values = {
        "job-name": f"{cluster.job_name_prefix}{name}",
        "partition": cluster.partition,
        "account": cluster.account,
        "gpus-per-node": cluster.gpus_per_node,
        "mem": cluster.mem,
        "exclude": ",".join(cluster.exclude),
        "comment": cluster.comment,
        "nodelist": cluster.nodelist,
        "qos": cluster.qos,
        "gres": cluster.gres,
    }
    named = (f"--{flag}={value}" for flag, value in values.items() if value not in (None, ""))
    flags = (f"--{flag}" for flag in ("exclusive", "overcommit") if getattr(cluster, flag))
    further = (word for text in cluster.sbatch_args for word in shlex.split(_further_option(text)))
    return (*named, *flags, *further)


def _further_option(text: str) -> str:
    """An option that the user wrote: one line that begins with a hyphen and closes its quotes."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cluster.sbatch_args has {text!r}: {error}; close it.") from error
    if not text.startswith("-"):
        raise ConfigError(f"cluster.sbatch_args has {text!r}, but options begin with a hyphen.")
    return _one_line(text)


def _dependency(after: str | tuple[int, ...]) -> str:
    return after if isinstance(after, str) else f"afterany:{':'.join(map(str, after))}"


def _words(text: str) -> list[str]:
    """A user's further flags of srun, which may be several in one text."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cluster.srun_args has {text!r}: {error}; close it.") from error


def _option(value: str) -> str:
    """An option as sbatch reads it: in quotes where it has more than plain characters."""
    value = _one_line(value)
    return value if _PLAIN.fullmatch(value) else shlex.quote(value)


def _one_line(value: str) -> str:
    if value.isprintable():
        return value
    raise ConfigError(
        f"{value!r} cannot be written in a batch script: it must be one printable line."
    )


def _quote(text: str) -> str:
    """Always in quotes, whatever the text."""
    plain = shlex.quote(text)
    return plain if plain.startswith("'") else f"'{text}'"


_EACH = {
    ClusterKind.BCM: 'sbatch --parsable "$job" || exit 1',
    ClusterKind.BCP: 'bash "$job" || echo "failed: $job" >&2',
}


def submit_all_text(kind: ClusterKind, scripts: Sequence[Path], *, about: str = "") -> str:
    """A script that starts every job."""
    jobs = " \\\n".join(f"  {shlex.quote(str(script))}" for script in scripts) or "  "
    head = f"{SHEBANG}\n# {about}\n" if about else f"{SHEBANG}\n"
    return f"{head}for job in \\\n{jobs}\ndo\n  {_EACH[kind]}\ndone\n"


_NEMO1 = "/opt/NeMo/examples/nlp/language_modeling"
_UNGIVEN = "???"
_HYDRA_PLAIN = re.compile(r"[\w./:+-]+|\?{3}")


def job_text(question: SearchQuestion, candidate: SearchCandidate, nodes: int) -> str:
    """The batch script of a candidate, or its command on Base Command."""
    command = f"{_key_from_file(question.settings)}{training_command(question, candidate)}"
    if question.settings.cluster.kind is ClusterKind.BCP:
        tasks = question.gpus_per_node
        words = f"--nnodes {nodes} --npernode {tasks} --cmd {shlex.quote(command)}"
        return f"{SHEBANG}\nbcprun {words}\n"
    return sbatch_text(slurm_job(question, candidate, nodes, command))


def _key_from_file(settings: SearchSettings) -> str:
    """Shell text that reads the W&B key from its file; "" if no such file is needed."""
    path = settings.tracking.wandb_key_file
    if path is None or not settings.tracking.trackers:
        return ""
    file = shlex.quote(str(Path(path).absolute()))
    return f'WANDB_API_KEY="$(head -n 1 {file})" '


def slurm_job(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int, command: str
) -> SlurmJob:
    """A candidate's job, with the options of ``cluster/bcm.yaml``."""
    settings = question.settings
    cluster, folder = settings.cluster, SearchFolder(settings.train.logs).run(candidate.name)
    return SlurmJob(
        name=f"{cluster.job_name_prefix}{candidate.name}",
        command=command,
        nodes=nodes,
        tasks_per_node=question.gpus_per_node,
        cluster=cluster_options(question),
        flags=container_flags(
            settings.paths.container or _UNGIVEN,
            search_mounts(question),
            cluster.srun_args,
            str(folder / "log_%j"),
        ),
        time=minutes_limit(max(1, round(settings.train.max_minutes))),
    )


def training_command(question: SearchQuestion, candidate: SearchCandidate) -> str:
    """NeMo's own pretraining of a candidate's file; one of NeMo 2.0 is a script."""
    logs, data = question.settings.train.logs, question.settings.paths.data or _UNGIVEN
    folder = SearchFolder(logs)
    if RECIPE in question.base:
        return shlex.join(("python3", "-u", str(folder.script(candidate.name))))
    script = nemo1_script(question.family.name)
    run = folder.run(candidate.name)
    return shlex.join(
        (
            *("python3", "-u", f"{_NEMO1}/{script}"),
            f"--config-path={folder.candidate(candidate.name).parent}",
            f"--config-name={candidate.name}.yaml",
            f"++data_dir={_hydra(data)}",
            f"++base_results_dir={_hydra(str(run.parent))}",
            f"++exp_manager.explicit_log_dir={_hydra(str(run / 'results'))}",
            "++exp_manager.create_checkpoint_callback=False",
        )
    )


def _hydra(value: str) -> str:
    """A value that hydra's grammar reads as this text."""
    if _HYDRA_PLAIN.fullmatch(value):
        return value
    escaped = re.sub(r"(\\+)('|$)", r"\1\1\2", value).replace("'", "\\'")
    return f"'{escaped}'"


def cluster_options(question: SearchQuestion) -> ClusterSettings:
    """Options of all jobs, with the GPUs of a node."""
    return replace(question.settings.cluster, gpus_per_node=_gpus_of_node(question))


def _gpus_of_node(question: SearchQuestion) -> int | None:
    """The cluster's own number where somebody gave it, else that of the training's nodes."""
    settings = question.settings
    own = settings.cluster.gpus_per_node
    is_given = "cluster.gpus_per_node" in settings.given
    return own if own is None or is_given else question.gpus_per_node


def search_mounts(question: SearchQuestion) -> tuple[str, ...]:
    """Tool, results and data at their own places, then what the user adds."""
    paths = question.settings.paths
    logs = question.settings.train.logs
    results = (paths.results, *(() if logs.is_relative_to(paths.results) else (str(logs),)))
    key = question.settings.tracking.wandb_key_file
    own = (paths.tool, *results, paths.data, key and str(Path(key).absolute()))
    return tuple(dict.fromkeys(mount for mount in (*own, *paths.mounts) if mount))
