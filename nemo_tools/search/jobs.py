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
from dataclasses import replace
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
_SHORT = {"partition": "-p", "account": "-A"}
_EACH = {
    ClusterKind.BCM: 'sbatch --parsable "$job" || exit 1',
    ClusterKind.BCP: 'bash "$job" || echo "failed: $job" >&2',
}
_NEMO1 = "/opt/NeMo/examples/nlp/language_modeling"
_UNGIVEN = "???"
_HYDRA_PLAIN = re.compile(r"[\w./:+-]+|\?{3}")
_GB = 10**9
_ABOUT = {
    ClusterKind.BCM: "Submits every job of this search to Slurm, the most promising first.",
    ClusterKind.BCP: "Runs every job of this search in this allocation, one after the other.",
}


def sbatch_text(
    name: str,
    commands: Iterable[str],
    cluster: ClusterSettings,
    *,
    size: tuple[int, int],
    flags: str,
    time: str,
) -> str:
    """The script of a job of Slurm, with its last newline.

    Args:
        name: of the job.
        commands: texts for a shell, each a separate step.
        cluster: the requested resources; None and empty omit an option.
        size: nodes, and tasks of each.
        flags: of ``srun``, already quoted.
        time: Slurm's time limit.
    """
    options = "".join(f"#SBATCH {option}\n" for option in _options(name, cluster, size, time))
    steps = "".join(f"srun {flags} sh -c {_quote(text)}\n\n" for text in commands)
    return f"{SHEBANG}\n{options}\n{steps}set +x\n"


def container_flags(container: str, mounts: Iterable[str], others: Iterable[str], log: str) -> str:
    """Flags of ``srun`` for a container; a bare mount has the same place inside.

    ``log`` is a path without its suffix.
    """
    pairs = [mount if ":" in mount else f"{mount}:{mount}" for mount in mounts]
    parts = [
        f"--container-image {shlex.quote(container)}",
        f"--container-mounts {shlex.quote(','.join(pairs))}",
        *(shlex.join(_words("srun_args", other)) for other in others),
        f"-o {shlex.quote(log)}.log",
        f"-e {shlex.quote(log)}.error",
    ]
    return f"{' '.join(parts)} "


def _options(
    job: str, cluster: ClusterSettings, size: tuple[int, int], time: str
) -> Iterator[str]:
    nodes, tasks = size
    yield f"--nodes={nodes}"
    yield f"--ntasks-per-node={tasks}"
    for flag, value in _resources(job, cluster, time).items():
        if value is True:
            yield f"--{flag}"
        elif flag in _SHORT:
            yield f"{_SHORT[flag]} {_option(str(value))}"
        else:
            text = str(value)
            yield f"--{flag}={_quote(_one_line(text)) if flag == 'comment' else _option(text)}"
    yield from map(_further_option, cluster.sbatch_args)


def _resources(
    job: str, cluster: ClusterSettings, time: str | None = None
) -> dict[str, str | int | None]:
    """The requested options of sbatch, by their names."""
    every = {
        "gpus-per-task": cluster.gpus_per_task,
        "gpus-per-node": cluster.gpus_per_node,
        "partition": cluster.partition,
        "account": cluster.account,
        "job-name": job,
        "mem": cluster.mem,
        "exclusive": cluster.exclusive,
        "overcommit": cluster.overcommit,
        "exclude": ",".join(cluster.exclude),
        "comment": cluster.comment,
        "nodelist": cluster.nodelist,
        "time": time,
        "qos": cluster.qos,
        "gres": cluster.gres,
    }
    return {flag: value for flag, value in every.items() if value not in (None, "", False)}


def sbatch_words(cluster: ClusterSettings, name: str) -> tuple[str, ...]:
    """The same options as words of sbatch itself, for jobs of our own launches."""
    values = _resources(f"{cluster.job_name_prefix}{name}", replace(cluster, gpus_per_task=None))
    words = (f"--{flag}" if one is True else f"--{flag}={one}" for flag, one in values.items())
    further = (word for text in cluster.sbatch_args for word in shlex.split(_further_option(text)))
    return (*words, *further)


def _further_option(text: str) -> str:
    """An option that the user wrote: one line that begins with a hyphen and closes its quotes."""
    _words("sbatch_args", text)
    if not text.startswith("-"):
        raise ConfigError(f"cluster.sbatch_args has {text!r}, but options begin with a hyphen.")
    return _one_line(text)


def _words(key: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cluster.{key} has {text!r}: {error}; close it.") from error


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


def submit_all_text(kind: ClusterKind, scripts: Sequence[Path], *, about: str = "") -> str:
    """A script that starts every job."""
    jobs = " \\\n".join(f"  {shlex.quote(str(script))}" for script in scripts) or "  "
    head = f"{SHEBANG}\n# {about}\n" if about else f"{SHEBANG}\n"
    return f"{head}for job in \\\n{jobs}\ndo\n  {_EACH[kind]}\ndone\n"


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
    if settings.cluster.kind is ClusterKind.BCP:
        nodes, tasks = size
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
        f"{cluster.job_name_prefix}{name}",
        commands,
        cluster,
        size=size,
        flags=container_flags(container, _mounts(settings), cluster.srun_args, str(log)),
        time=settings.inference.time_limit if is_inference else minutes,
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
