"""Launches of candidates on a cluster, as text.

The order of options follows NVIDIA's writer (auto_configurator, 24.12), so that files of both
can be compared line by line.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.export import export_base
from autoconf_launch.launcher.results import Fingerprint

from ..candidate_grids import minutes_limit
from ..export import nemo1_script
from ..report import JOB_LOG, read_run
from .candidate_file import SearchFolder, candidate_document, write_documents
from .candidates import SearchCandidate
from .prepare import Prepared
from .question import RECIPE
from .settings import ClusterKind, ClusterSettings, SearchSettings

SHEBANG = "#!/usr/bin/env bash"
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]*")
"""Characters of an sbatch option that needs no quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job of Slurm.

    Attributes:
        commands: texts for a shell, each a separate step.
        cluster: the requested resources; None and empty omit an option.
        flags: of ``srun``, already quoted.
        time: Slurm's time limit.
    """

    name: str
    commands: Sequence[str]
    nodes: int
    tasks_per_node: int
    cluster: ClusterSettings
    flags: str
    time: str


def sbatch_text(job: SlurmJob) -> str:
    """The whole script, with its last newline."""
    options = "".join(f"#SBATCH {option}\n" for option in _options(job))
    steps = "".join(f"srun {job.flags} sh -c {_quote(text)}\n\n" for text in job.commands)
    return f"{SHEBANG}\n{options}\n{steps}set +x\n"


def mount_pair(mount: str) -> str:
    """``source:destination`` of a mount; a bare path has the same place inside."""
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
    yield f"--ntasks-per-node={job.tasks_per_node}"
    for name in ("gpus_per_task", "gpus_per_node"):
        if (number := getattr(cluster, name)) is not None:
            yield f"--{name.replace('_', '-')}={number}"
    for flag, value in (("-p", cluster.partition), ("-A", cluster.account)):
        if value:
            yield f"{flag} {_option(value)}"
    yield f"--job-name={_option(job.name)}"
    if cluster.mem is not None:
        yield f"--mem={_option(cluster.mem)}"
    yield from (f"--{name}" for name in ("exclusive", "overcommit") if getattr(cluster, name))
    texts = {
        "exclude": _option(",".join(cluster.exclude)),
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


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cluster.srun_args has {text!r}: {error}; close it.") from error


def _option(value: str) -> str:
    """An option as sbatch reads it: in quotes if it has more than plain characters."""
    value = _one_line(value)
    return value if _PLAIN.fullmatch(value) else shlex.quote(value)


def _one_line(value: str) -> str:
    if value.isprintable():
        return value
    raise ConfigError(
        f"{value!r} cannot be written in a batch script: it must be one printable line."
    )


def _quote(text: str) -> str:
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


def job_text(prepared: Prepared, candidate: SearchCandidate) -> str:
    """The batch script of a candidate, or its command on Base Command."""
    settings, key = prepared.settings, ""
    if settings.tracking.trackers and settings.tracking.wandb_key_file is not None:
        file = shlex.quote(str(Path(settings.tracking.wandb_key_file).absolute()))
        key = f'WANDB_API_KEY="$(head -n 1 {file})" '
    return job_script(
        settings,
        candidate.name,
        (f"{key}{training_command(prepared, candidate)}",),
        size=(prepared.found.nodes, prepared.question.gpus_per_node),
        log=SearchFolder(settings.train.logs).run(candidate.name) / "log_%j",
    )


def job_script(
    settings: SearchSettings,
    name: str,
    commands: Sequence[str],
    *,
    size: tuple[int, int],
    log: Path,
    is_inference: bool = False,
) -> str:
    """Commands, one after the other, as a job of Slurm or as a script for Base Command.

    Args:
        settings: the resources to request of Slurm, and folders.
        name: of the job, after the user's prefix.
        commands: texts for a shell.
        size: nodes, and tasks of each.
        log: path of the job's logs, without their suffix.
        is_inference: the container and the time limit come from the inference settings.
    """
    nodes, tasks = size
    if settings.cluster.kind is ClusterKind.BCP:
        prefix = f"bcprun --nnodes {nodes} --npernode {tasks} --cmd"
        lines = "\n".join(f"{prefix} {shlex.quote(command)}" for command in commands)
        return f"{SHEBANG}\n{lines}\n"
    container = settings.inference.container if is_inference else None
    container = container or settings.paths.container or _UNGIVEN
    minutes = minutes_limit(max(1, round(settings.train.max_minutes)))
    own = settings.cluster.gpus_per_node
    is_given = own is None or "cluster.gpus_per_node" in settings.given
    each = own if is_given else settings.train.gpus_per_node
    cluster = replace(settings.cluster, gpus_per_node=each)
    return sbatch_text(
        SlurmJob(
            name=f"{cluster.job_name_prefix}{name}",
            commands=commands,
            nodes=nodes,
            tasks_per_node=tasks,
            cluster=cluster,
            flags=container_flags(container, _mounts(settings), cluster.srun_args, str(log)),
            time=settings.inference.time_limit if is_inference else minutes,
        )
    )


def training_command(prepared: Prepared, candidate: SearchCandidate) -> str:
    """NeMo's own pretraining of a candidate's file; NeMo 2.0 runs a script."""
    question, data = prepared.question, prepared.settings.paths.data or _UNGIVEN
    folder = SearchFolder(question.scope.logs)
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
    if _HYDRA_PLAIN.fullmatch(value):
        return value
    escaped = re.sub(r"(\\+)('|$)", r"\1\1\2", value).replace("'", "\\'")
    return f"'{escaped}'"


def _mounts(settings: SearchSettings) -> tuple[str, ...]:
    """Tool, results and data at their own places, then the user's additions."""
    paths, logs = settings.paths, settings.train.logs
    results = (paths.results, *(() if logs.is_relative_to(paths.results) else (str(logs),)))
    key = settings.tracking.wandb_key_file
    own = (paths.tool, *results, paths.data, key and str(Path(key).absolute()))
    return tuple(dict.fromkeys(mount for mount in (*own, *paths.mounts) if mount))


class NemoJobs:
    """NeMo's own runs of a search as jobs; see :class:`~.job_runs.JobFiles`."""

    is_kept = False

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._question = prepared, prepared.question
        self._nodes, self.kind = prepared.found.nodes, prepared.settings.cluster.kind
        self._folder = SearchFolder(prepared.question.scope.logs)
        self.paths = self._folder.runs

    @property
    def fingerprint(self) -> Fingerprint:
        question, paths = self._question, self._prepared.settings.paths
        return Fingerprint(
            script="nemo",
            arguments=tuple(str(part) for part in (paths.container, paths.data, *paths.mounts)),
            config=hashlib.sha256(question.base.to_json().encode()).hexdigest(),
            hardware=(f"{self._nodes} x {question.gpus_per_node}",),
            versions=(),
        )

    def write(self, points: Sequence[SearchCandidate]) -> None:
        """Write the base, and each candidate's configuration, recipe and job."""
        question, folder = self._question, self._folder
        jobs = {one.name: job_text(self._prepared, one) for one in points}
        write_documents(question, folder, points)
        for one in points if RECIPE in question.base else ():
            document = candidate_document(question, one, self._nodes)
            folder.files.write(folder.script(one.name), export_base(document, "nemo2").text)
        for name, text in jobs.items():
            folder.files.write(folder.job(name), text)
            folder.files.make_below(folder.run(name))  # Slurm opens a job's log there first
        scripts = [folder.job(one.name) for one in points]
        text = submit_all_text(self.kind, scripts, about=_ABOUT[self.kind])
        folder.files.write(folder.submit_all, text)

    def script(self, name: str) -> Path:
        return self._folder.job(name)

    def folder(self, name: str) -> Path:
        return self._folder.run(name)

    def clear(self, name: str) -> None:
        run = self._folder.run(name)
        self._folder.files.make_below(run)  # no link leads to what is removed
        shutil.rmtree(run, ignore_errors=True)
        self._folder.files.make_below(run)

    def read(self, name: str) -> Outcome:
        """The outcome, from NeMo's log."""
        question = self._question
        return read_run(
            self._folder.run(name),
            JOB_LOG,
            samples=question.global_batch,
            gpus=self._nodes * question.gpus_per_node,
            gpu_bytes=int(question.model.asked.gpu_memory_gb * _GB),
        )


_GB = 10**9
_ABOUT = {
    ClusterKind.BCM: "Submits every job of this search to Slurm, the most promising first.",
    ClusterKind.BCP: "Runs every job of this search in this allocation, one after the other.",
}
